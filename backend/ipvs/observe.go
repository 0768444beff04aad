package ipvs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"portolan/dataplane"
	"portolan/kernel/ipset"
	"portolan/kernel/iptables"
	"portolan/kernel/ipvs"
	"portolan/service"
)

// Observe streams what is there of ours: sets and their entries, the device and its
// addresses, virtual servers, rules. A virtual server is ours when its address is on
// our device, or one of our sets has its address and port or, for a NodePort, its
// port. Real servers of weight 0 are on their way out, whoever began that.
func (b *Backend) Observe(ctx context.Context) iter.Seq2[dataplane.Object, error] {
	return func(yield func(dataplane.Object, error) bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		o := observation{b: b, yield: func(o dataplane.Object) bool { return yield(o, nil) }, targets: map[ipvs.ID]*target{}}
		for _, look := range []func() error{o.sets, o.device, o.servers, func() error { return o.rules(ctx) }} {
			if err := look(); err != nil {
				if !errors.Is(err, errEnough) {
					yield(dataplane.Object{}, fmt.Errorf("ipvs: observe: %w", err))
				}
				return
			}
		}
	}
}

// errEnough: the consumer wants no more.
var errEnough = errors.New("enough")

// observation is one look at the kernel. What belongs to a virtual server is gathered in
// its target, since it comes from several places.
type observation struct {
	b     *Backend
	yield func(dataplane.Object) bool

	targets   map[ipvs.ID]*target
	addresses map[netip.Addr]bool
	ports     map[ipvs.Protocol]map[uint16]bool // NodePorts
}

func (o *observation) object(container, name, body string) error {
	rank := dataplane.Keyed
	if !o.yield(dataplane.Object{Key: dataplane.Key{Container: container, Rank: rank, Name: name}, Body: body}) {
		return errEnough
	}
	return nil
}

// sets yields the declarations of our sets, and then what is in them. On the way it
// learns which ports NodePorts have.
func (o *observation) sets() error {
	o.ports = map[ipvs.Protocol]map[uint16]bool{ipvs.TCP: {}, ipvs.UDP: {}}
	kernel := o.b.options.Kernel.Sets
	there := map[setID]bool{}
	for i := range sets {
		s, err := kernel.Describe(o.b.name(setID(i)))
		if errors.Is(err, ipset.ErrMissing) {
			continue
		}
		if err == nil {
			err = o.object(setsContainer, s.Name, describe(s))
		}
		if err != nil {
			return err
		}
		there[setID(i)] = true
	}
	for i := range sets {
		id := setID(i)
		if !there[id] {
			continue
		}
		var list []ipset.Entry
		if err := kernel.Entries(o.b.name(id), func(e ipset.Entry) { list = append(list, e) }); err != nil {
			return err
		}
		if err := o.entries(id, list); err != nil {
			return err
		}
	}
	return nil
}

// entries are objects of their own, or belong to a target.
func (o *observation) entries(id setID, list []ipset.Entry) error {
	switch {
	case id == nodePortTCP || id == nodePortLocalTCP:
		note(o.ports[ipvs.TCP], list)
	case id == nodePortUDP || id == nodePortLocalUDP:
		note(o.ports[ipvs.UDP], list)
	}
	if id == ipvsIPs {
		return nil // go with the addresses
	}
	if slices.Contains(ownEntries, id) {
		if err := o.object(setPrefix+o.b.name(id), "", ""); err != nil {
			return err
		}
		for _, e := range list {
			text := sets[id].typ.Text(e)
			if err := o.object(setPrefix+o.b.name(id), text, text); err != nil {
				return err
			}
		}
		return nil
	}
	for _, e := range list {
		t := o.target(ipvs.ID{Protocol: ipvs.Protocol(e.Protocol), Addr: netip.AddrPortFrom(e.Addr, e.Port)})
		if e.Source.IsValid() {
			t.join(id, e.Source)
		} else {
			t.join(id)
		}
	}
	return nil
}

func note(ports map[uint16]bool, list []ipset.Entry) {
	for _, e := range list {
		ports[e.Port] = true
	}
}

func (o *observation) target(id ipvs.ID) *target {
	t := o.targets[id]
	if t == nil {
		t = &target{server: ipvs.Server{ID: id}}
		o.targets[id] = t
	}
	return t
}

// device yields the dummy device and its addresses. An address belongs to two places, the
// device and the set KUBE-IPVS-IPS; one that only one of them has reads as a body that
// nothing asks for, so that the difference is written.
func (o *observation) device() error {
	addrs, exists, err := o.b.options.Kernel.Device.Addresses(o.b.ipv6())
	if err != nil {
		return err
	}
	if exists {
		if err := o.object(deviceContainer, DeviceName, "dummy"); err != nil {
			return err
		}
	}
	guarded := map[netip.Addr]bool{}
	err = o.b.options.Kernel.Sets.Entries(o.b.name(ipvsIPs), func(e ipset.Entry) { guarded[e.Addr] = true })
	if ignore(err, ipset.ErrMissing) != nil {
		return err
	}
	o.addresses = map[netip.Addr]bool{}
	for _, a := range addrs {
		o.addresses[a] = true
		body := a.String()
		if !guarded[a] {
			body += " unguarded"
		}
		if err := o.object(addressesContainer, a.String(), body); err != nil {
			return err
		}
		delete(guarded, a)
	}
	for a := range guarded {
		if err := o.object(addressesContainer, a.String(), a.String()+" unbound"); err != nil {
			return err
		}
	}
	return nil
}

// servers reads virtual servers, and puts them together with the sets that they are
// in.
func (o *observation) servers() error {
	list, err := o.b.options.Kernel.Servers.Servers()
	if err != nil {
		return err
	}
	seen := map[realID]bool{}
	for _, s := range list {
		if service.FamilyOf(s.ID.Addr.Addr()) != o.b.options.Family || o.b.excluded(s.ID) || !o.ours(s.ID) {
			continue
		}
		reals, err := o.b.options.Kernel.Servers.Reals(s.ID)
		if err != nil {
			return err
		}
		t := o.target(s.ID)
		t.server = s
		for _, r := range reals {
			r.Active, r.Inactive = 0, 0
			if r.Weight > 0 {
				t.reals = append(t.reals, r)
				continue
			}
			real := realID{s.ID, r.Addr}
			seen[real] = true
			if o.b.draining[real].IsZero() {
				o.b.draining[real] = time.Now()
				o.b.drainNow[s.ID] = true
			}
		}
		if o.b.retired[s.ID] && len(t.reals) == 0 {
			t.server = ipvs.Server{ID: s.ID} // as good as gone
		}
	}
	for real := range o.b.draining {
		if !seen[real] {
			delete(o.b.draining, real)
		}
	}
	o.b.schedule()
	for id, t := range o.targets {
		if err := o.object(serversContainer, nameOf(id), o.b.body(t)); err != nil {
			return err
		}
	}
	return nil
}

func (o *observation) ours(id ipvs.ID) bool {
	return o.targets[id] != nil || o.addresses[id.Addr.Addr()] || o.ports[id.Protocol][id.Addr.Port()]
}

// rules reads the tables that hold any; the others would be loaded by the question.
func (o *observation) rules(ctx context.Context) error {
	tool := o.b.options.Kernel.Tool
	t := observedTable{b: o.b, yield: o.yield}
	for text, err := range tool.SaveAll(ctx, tool.Filled(tables...)...) {
		if err != nil {
			return err
		}
		if !t.line(text) {
			return errEnough
		}
	}
	return nil
}

// observedTable turns the lines of one iptables-save into objects, table by table.
type observedTable struct {
	b     *Backend
	table string
	yield func(dataplane.Object) bool

	chain string
	rank  int
}

// line tells whether to go on.
func (t *observedTable) line(text string) bool {
	if table, ok := strings.CutPrefix(text, "*"); ok {
		t.table, t.chain = table, ""
		return true
	}
	if rule, ok := strings.CutPrefix(text, "-A "); ok {
		chain, rule, _ := strings.Cut(rule, " ")
		return t.rule(chain, rule)
	}
	if chain, ok := strings.CutPrefix(text, ":"); ok {
		chain, _, _ = strings.Cut(chain, " ")
		container := t.table + "/" + chain
		switch {
		case ownChain(container):
			return t.yield(dataplane.Object{Key: dataplane.Key{Container: container}})
		case t.b.jumps[container] != nil:
			return t.yield(dataplane.Object{Key: dataplane.Key{Container: container, Rank: dataplane.Keyed}})
		}
	}
	return true
}

// rule yields a rule of a chain of ours, and jumps to them from chains of others.
func (t *observedTable) rule(chain, rule string) bool {
	if chain != t.chain {
		t.chain, t.rank = chain, 0
	}
	container := t.table + "/" + chain
	if ownChain(container) {
		body, _ := iptables.Canonical(rule)
		key := dataplane.Key{Container: container, Rank: t.rank}
		t.rank++
		return t.yield(dataplane.Object{Key: key, Body: body})
	}
	if !strings.Contains(rule, "KUBE-") {
		return true
	}
	body, _ := iptables.Canonical(rule)
	key, ours := t.b.jumps[container][body]
	if !ours && strayJump(t.table, body) {
		key, ours = dataplane.Key{Container: container, Rank: dataplane.Keyed, Name: body}, true
	}
	return !ours || t.yield(dataplane.Object{Key: key, Body: body})
}

// strayJump recognises a jump of kube-proxy, of this mode or another, that this mode
// does without.
func strayJump(table, body string) bool {
	_, target, jumps := strings.Cut(body, " -j ")
	return jumps && ownChain(table+"/"+target) &&
		(strings.Contains(body, `--comment "kubernetes `) || strings.Contains(body, `--comment "kube-proxy `))
}
