package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan/dataplane"
	"portolan/kernel/ipset"
)

// Apply writes the plan: sets, then rules that come, then one address after the
// other with its virtual servers and their sets, and backwards for what goes. What
// the kernel refuses of one Service comes back as a *dataplane.Refusal that names it.
func (b *Backend) Apply(ctx context.Context, p dataplane.Plan) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	u, err := b.update(p)
	if err != nil {
		return err
	}
	return errors.Join(u.write(ctx), b.drain(ctx))
}

// update is one plan, taken apart.
type update struct {
	b       *Backend
	sets    []dataplane.Change // at most one
	rules   []dataplane.Change
	device  bool // it is to be made
	bind    map[netip.Addr]dataplane.Key
	unbind  []netip.Addr
	servers []serverChange
	enter   []entryChange
	leave   []entryChange
}

// entryChange is an entry that a set gets or loses, and the object that asks for it.
type entryChange struct {
	key   dataplane.Key
	set   setID
	entry ipset.Entry
}

// update takes a plan apart.
func (b *Backend) update(p dataplane.Plan) (*update, error) {
	u := &update{b: b, bind: map[netip.Addr]dataplane.Key{}}
	for _, c := range p.Changes {
		var err error
		name, isSet := strings.CutPrefix(c.Container, setPrefix)
		switch {
		case c.Container == setsContainer:
			u.sets = append(u.sets, c)
		case c.Container == deviceContainer:
			u.device = len(c.Created) > 0
		case c.Container == addressesContainer:
			err = u.sortAddresses(c)
		case c.Container == serversContainer:
			err = u.sortServers(c)
		case isSet:
			err = u.sortEntries(name, c)
		default:
			u.rules = append(u.rules, c)
		}
		if err != nil {
			return nil, err
		}
	}
	return u, nil
}

// sortAddresses takes up the addresses that come and go.
func (u *update) sortAddresses(c dataplane.Change) error {
	created := c.Created
	for _, r := range c.Replaced { // it was half there
		created = append(created[:len(created):len(created)], r.New)
	}
	for _, o := range created {
		addr, err := netip.ParseAddr(o.Key.Name)
		if err != nil {
			return &dataplane.Refusal{Key: o.Key, Err: fmt.Errorf("ipvs: apply: %w", err)}
		}
		u.bind[addr] = o.Key
	}
	for _, o := range c.Deleted {
		addr, err := netip.ParseAddr(o.Key.Name)
		if err != nil {
			return fmt.Errorf("ipvs: apply: %w", err)
		}
		u.unbind = append(u.unbind, addr)
	}
	return nil
}

// sortServers takes up the changes of virtual servers. A body that is wanted and cannot
// be read is a Refusal; one that was read from the kernel cannot be wrong.
func (u *update) sortServers(c dataplane.Change) error {
	add := func(k dataplane.Key, old, now string) error {
		change := serverChange{key: k}
		var err error
		if old != "" {
			if change.old, err = u.b.parseTarget(old); err != nil {
				return err
			}
		}
		if now != "" {
			if change.now, err = u.b.parseTarget(now); err != nil {
				return &dataplane.Refusal{Key: k, Err: err}
			}
		}
		u.servers = append(u.servers, change)
		return nil
	}
	for _, o := range c.Created {
		if err := add(o.Key, "", o.Body); err != nil {
			return err
		}
	}
	for _, r := range c.Replaced {
		if err := add(r.New.Key, r.Old.Body, r.New.Body); err != nil {
			return err
		}
	}
	for _, o := range c.Deleted {
		if err := add(o.Key, o.Body, ""); err != nil {
			return err
		}
	}
	sortServers(u.servers)
	return nil
}

// sortEntries takes up the entries that a set gets and loses.
func (u *update) sortEntries(name string, c dataplane.Change) error {
	s := u.b.setOf[name]
	if s == nil {
		return fmt.Errorf("ipvs: apply: no set is called %q", name)
	}
	for _, list := range []struct {
		from []dataplane.Object
		to   *[]entryChange
	}{{c.Created, &u.enter}, {c.Deleted, &u.leave}} {
		for _, o := range list.from {
			e, err := s.typ.Parse(o.Body)
			if err != nil {
				return &dataplane.Refusal{Key: o.Key, Err: fmt.Errorf("ipvs: apply: %w", err)}
			}
			*list.to = append(*list.to, entryChange{o.Key, s.id, e})
		}
	}
	return nil
}

// write goes by the order that Apply promises.
func (u *update) write(ctx context.Context) error {
	steps := []func() error{
		u.writeSets,
		func() error { return u.writeRules(ctx, comes) },
		u.writeDevice,
		u.writeEntries,
		func() error { return u.writeServers(ctx) },
		u.unbindAddresses,
		u.removeEntries,
		func() error { return u.writeRules(ctx, goes) },
		u.removeSets,
	}
	for _, step := range steps {
		if err := errors.Join(ctx.Err(), step()); err != nil {
			return err
		}
	}
	return nil
}

// writeSets makes sets, and replaces those that are there with another shape by one
// that holds the same.
func (u *update) writeSets() error {
	for _, c := range u.sets {
		for _, o := range c.Created {
			if err := u.b.options.Kernel.Sets.Create(u.b.sets[u.b.setOf[o.Key.Name].id]); err != nil {
				return err
			}
		}
		for _, r := range c.Replaced {
			if err := u.b.reshape(u.b.setOf[r.New.Key.Name].id); err != nil {
				return err
			}
		}
	}
	return nil
}

// reshape exchanges a set for one of the wanted size, in one step for the rules that
// match with it.
func (b *Backend) reshape(id setID) error {
	k := b.options.Kernel.Sets
	fresh := b.sets[id]
	fresh.Name = "KUBE-PORTOLAN-NEW"
	if err := errors.Join(k.Destroy(fresh.Name), k.Create(fresh)); err != nil {
		return err
	}
	var list []ipset.Entry
	if err := k.Entries(b.name(id), func(e ipset.Entry) { list = append(list, e) }); err != nil {
		return err
	}
	for _, e := range list {
		if err := k.Add(fresh, e); err != nil {
			return err
		}
	}
	return errors.Join(k.Swap(fresh.Name, b.name(id)), k.Destroy(fresh.Name))
}

func (u *update) removeSets() error {
	for _, c := range u.sets {
		for _, o := range c.Deleted {
			if err := u.b.options.Kernel.Sets.Destroy(o.Key.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *update) writeDevice() error {
	if !u.device {
		return nil
	}
	return u.b.options.Kernel.Device.Ensure()
}

func (u *update) writeEntries() error {
	for _, e := range u.enter {
		if err := u.b.addEntry(e.set, e.entry); err != nil {
			return refusalOf(e.key, err)
		}
	}
	return nil
}

func (u *update) removeEntries() error {
	for _, e := range u.leave {
		if err := u.b.deleteEntry(e.set, e.entry); err != nil {
			return err
		}
	}
	return nil
}

// writeServers writes one virtual server after the other, each with its address: when
// the next begins it is complete. What one is refused does not hold back the others.
func (u *update) writeServers(ctx context.Context) error {
	var refused error
	note := func(err error) error {
		if errors.As(err, new(*dataplane.Refusal)) {
			if refused == nil {
				refused = err
			}
			return nil
		}
		return err
	}
	for _, c := range u.servers {
		if err := errors.Join(ctx.Err(), note(u.bindAddress(c.id().Addr.Addr())), note(u.writeServer(c))); err != nil {
			return err
		}
	}
	for _, addr := range sortedAddrs(u.bind) {
		if err := note(u.bindAddress(addr)); err != nil {
			return err
		}
	}
	return refused
}

func sortedAddrs(m map[netip.Addr]dataplane.Key) []netip.Addr {
	var out []netip.Addr
	for a := range m {
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// bindAddress makes an address local, if it is to come. First it is one that refuses
// what it has no virtual server for.
func (u *update) bindAddress(addr netip.Addr) error {
	k, comes := u.bind[addr]
	if !comes {
		return nil
	}
	delete(u.bind, addr)
	err := u.b.addEntry(ipvsIPs, ipset.Entry{Addr: addr})
	if err == nil {
		err = u.b.options.Kernel.Device.Add(addr)
	}
	if err != nil {
		return refusalOf(k, err)
	}
	return nil
}

// unbindAddresses takes addresses off the device, and only then out of the set by which
// they refuse what they have no virtual server for.
func (u *update) unbindAddresses() error {
	for _, addr := range u.unbind {
		err := u.b.options.Kernel.Device.Remove(addr)
		if err == nil {
			err = u.b.deleteEntry(ipvsIPs, ipset.Entry{Addr: addr})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
