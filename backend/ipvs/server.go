package ipvs

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"portolan/dataplane"
	"portolan/kernel/ipset"
	"portolan/kernel/ipvs"
)

// serverChange is what happens to one target: it comes (old nil), goes (now nil), or
// is another.
type serverChange struct {
	key      dataplane.Key
	old, now *target
}

func (c serverChange) id() ipvs.ID {
	if c.now != nil {
		return c.now.server.ID
	}
	return c.old.server.ID
}

// sortServers orders them: cluster IPs come first, in the order of addresses. The
// first of all is the API server's, which has the first address of its network, and
// on which everything else of a node depends that just joined.
func sortServers(list []serverChange) {
	rank := func(c serverChange) int {
		if c.now != nil && len(c.now.members[clusterIP]) > 0 {
			return 0
		}
		return 1
	}
	slices.SortFunc(list, func(a, b serverChange) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), a.id().Compare(b.id())) })
}

// writeServer changes one virtual server so that a new connection meets what was or
// what will be: what protects comes first, real servers before the sets that open
// the address, new real servers before old ones go.
func (u *update) writeServer(c serverChange) error {
	old, now := c.old, c.now
	if old == nil {
		old = &target{server: ipvs.Server{ID: c.id()}}
	}
	if now == nil {
		now = &target{server: ipvs.Server{ID: c.id()}}
	}
	remove := func() error { return u.retire(old, now) }
	if c.now == nil {
		remove = func() error { return u.deleteVirtual(old) }
	}
	steps := []func() error{
		func() error { return u.joinSets(memberSets[:guards], old, now) },
		func() error { return u.writeVirtual(old, now) },
		func() error { return u.joinSets(memberSets[guards:], old, now) },
		func() error { return u.leaveSets(memberSets[guards:], old, now) },
		remove,
		func() error { return u.leaveSets(memberSets[:guards], old, now) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return refusalOf(c.key, err)
		}
	}
	return nil
}

// writeVirtual makes or changes the virtual server and adds real servers.
func (u *update) writeVirtual(old, now *target) error {
	if !now.serves() {
		return nil
	}
	k := u.b.options.Kernel.Servers
	delete(u.b.retired, now.server.ID)
	var err error
	switch {
	case !old.serves():
		if err = k.AddServer(now.server); errors.Is(err, unix.EEXIST) { // it is being retired, or somebody made it
			err = k.SetServer(now.server)
		}
	case old.server != now.server:
		err = k.SetServer(now.server)
	}
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("this kernel lacks the scheduler %s (module ip_vs_%[1]s): %w", now.server.Scheduler, err)
	}
	if err != nil {
		return err
	}
	for _, r := range now.reals {
		if slices.Contains(old.reals, r) {
			continue
		}
		err := u.b.writeReal(now.server.ID, r, contains(old.reals, r.Addr))
		if err := u.b.leaveOut(realID{now.server.ID, r.Addr}, err); err != nil {
			return err
		}
	}
	return u.removeReals(now.server.ID, old.reals, now.reals)
}

// leaveOut passes over a real server that the kernel does not take since no route
// leads to it: no packet would get there. The others serve, and the next full look
// tries again. It is told once.
func (b *Backend) leaveOut(real realID, err error) error {
	if !errors.Is(err, unix.EINVAL) {
		delete(b.unroutable, real)
		return err
	}
	if !b.unroutable[real] && b.options.Trouble != nil {
		b.options.Trouble(fmt.Errorf("ipvs: no route leads to this real server, which is left out: %w", err))
	}
	b.unroutable[real] = true
	return nil
}

// writeReal adds a real server; one that is there, known or still draining, gets its
// weight.
func (b *Backend) writeReal(id ipvs.ID, r ipvs.Real, known bool) error {
	k := b.options.Kernel.Servers
	if real := (realID{id, r.Addr}); !b.draining[real].IsZero() {
		delete(b.draining, real)
		known = true
	}
	if known {
		err := k.SetReal(id, r)
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	err := k.AddReal(id, r)
	if errors.Is(err, unix.EEXIST) {
		return k.SetReal(id, r)
	}
	return err
}

func contains(list []ipvs.Real, addr netip.AddrPort) bool {
	return slices.ContainsFunc(list, func(r ipvs.Real) bool { return r.Addr == addr })
}

// removeReals takes those away that are in old and not in now.
func (u *update) removeReals(id ipvs.ID, old, now []ipvs.Real) error {
	var errs []error
	for _, r := range old {
		if !contains(now, r.Addr) {
			errs = append(errs, u.b.removeReal(id, r))
		}
	}
	return errors.Join(errs...)
}

// removeReal lets the connections of a TCP real server end; those of other protocols
// are not told from silence, and find another one with the next packet after underWay
// (net.ipv4.vs.expire_nodest_conn).
func (b *Backend) removeReal(id ipvs.ID, r ipvs.Real) error {
	r.Weight = 0
	if err := b.options.Kernel.Servers.SetReal(id, r); err != nil {
		return ignore(err, unix.ENOENT)
	}
	b.draining[realID{id, r.Addr}] = time.Now()
	b.drainNow[id] = true
	return nil
}

// deleteVirtual takes a virtual server away whose Service is gone.
func (u *update) deleteVirtual(old *target) error {
	id := old.server.ID
	if u.b.excluded(id) {
		return nil
	}
	if old.serves() || u.b.retired[id] {
		if err := ignore(u.b.options.Kernel.Servers.DeleteServer(id), unix.ESRCH); err != nil {
			return err
		}
	}
	u.b.forgetServer(id)
	return nil
}

// retire leaves a virtual server that serves no more to the connections that it still has.
func (u *update) retire(old, now *target) error {
	if !old.serves() || now.serves() {
		return nil
	}
	id := now.server.ID
	u.b.retired[id] = true
	u.b.drainNow[id] = true
	return u.removeReals(id, old.reals, nil)
}

// joinSets adds the entries that a target has now and had not.
func (u *update) joinSets(list []setID, old, now *target) error {
	for _, id := range list {
		for _, e := range now.entries(id) {
			if slices.Contains(old.entries(id), e) {
				continue
			}
			if err := u.b.addEntry(id, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaveSets goes backwards.
func (u *update) leaveSets(list []setID, old, now *target) error {
	for _, id := range slices.Backward(list) {
		for _, e := range old.entries(id) {
			if slices.Contains(now.entries(id), e) {
				continue
			}
			if err := u.b.deleteEntry(id, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Backend) addEntry(id setID, e ipset.Entry) error {
	return b.options.Kernel.Sets.Add(b.sets[id], e)
}

func (b *Backend) deleteEntry(id setID, e ipset.Entry) error {
	err := b.options.Kernel.Sets.Delete(b.sets[id], e)
	return ignore(err, ipset.ErrMissing)
}

// ignore is nil for an error that means that nothing has to be done.
func ignore(err, fine error) error {
	if errors.Is(err, fine) {
		return nil
	}
	return err
}

// excluded tells whether a virtual server is somebody else's by configuration.
func (b *Backend) excluded(id ipvs.ID) bool {
	return slices.ContainsFunc(b.options.Exclude, func(p netip.Prefix) bool { return p.Contains(id.Addr.Addr()) })
}

// refusalOf tells what is to blame for an error: the content, when the kernel says
// that it does not take it, else circumstances.
func refusalOf(k dataplane.Key, err error) error {
	err = fmt.Errorf("ipvs: apply %s %s: %w", k.Container, k.Name, err)
	for _, content := range []error{unix.EINVAL, unix.ENOENT, unix.EAFNOSUPPORT, unix.EADDRNOTAVAIL, unix.EOPNOTSUPP, ipset.ErrFull} {
		if errors.Is(err, content) {
			return &dataplane.Refusal{Key: k, Err: err}
		}
	}
	return err
}
