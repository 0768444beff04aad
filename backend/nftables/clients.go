package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strings"

	"golang.org/x/sys/unix"

	"portolan/dataplane"
	"portolan/kernel/nft"
)

// forgotten are endpoints whose clients in one scope are to be forgotten.
type forgotten struct {
	gone      bool            // with the scope: all of them
	but       bool            // all of them but the endpoints
	endpoints map[string]bool // as bytes
}

func (f forgotten) has(endpoint string) bool { return f.gone || f.endpoints[endpoint] != f.but }

// and returns what either forgets.
func (f forgotten) and(o forgotten) forgotten {
	if o.but && !f.but {
		f, o = o, f
	}
	out := forgotten{gone: f.gone || o.gone, but: f.but, endpoints: maps.Clone(f.endpoints)}
	switch {
	case !f.but && out.endpoints == nil:
		out.endpoints = maps.Clone(o.endpoints)
	case !f.but:
		maps.Copy(out.endpoints, o.endpoints)
	default:
		maps.DeleteFunc(out.endpoints, func(e string, _ bool) bool { return o.has(e) })
	}
	return out
}

// keep has the clients of endpoints be remembered.
func (f forgotten) keep(endpoints map[string]bool) {
	for e := range endpoints {
		if f.but {
			f.endpoints[e] = true
		} else {
			delete(f.endpoints, e)
		}
	}
}

// staleClients are the remembered choices that must go, by number of the scope.
type staleClients map[uint32]forgotten

func (s staleClients) add(more staleClients) {
	for id, f := range more {
		s[id] = s[id].and(f)
	}
}

// staleClients finds what the plan makes stale: clients of a scope that goes, those that
// remember an endpoint which a frontend loses, and where a frontend comes into a scope
// that there was, those at endpoints that it does not have. For a Service that was made
// anew within moments may have nothing of the one before but the names.
func (b *Backend) staleClients(p dataplane.Plan, fresh bool) staleClients {
	stale := staleClients{}
	come := map[string]string{} // slots of frontends that come, by scope
	if fresh {
		come = b.stayInScopes(p)
	}
	for _, c := range p.Changes {
		switch c.Container { // scopes come after frontends
		case scopes:
			for _, o := range c.Deleted {
				stale[b.ids.byName[o.Key.Name]] = forgotten{gone: true}
			}
			for _, o := range c.Created {
				delete(come, o.Key.Name)
			}
		case frontends:
			for _, o := range c.Created {
				if scope, slots := scopeAndSlots(o); scope != "" {
					come[scope] = slots[0]
				}
			}
			left := scopesLeft(c)
			for _, r := range c.Replaced {
				before, _ := scopeAndSlots(r.Old)
				if scope, slots := scopeAndSlots(r.New); scope != "" && (scope != before || left[scope]) {
					come[scope] = slots[0]
				}
				b.staleOf(stale, r)
			}
		}
	}
	for scope, slots := range come {
		f := forgotten{but: true, endpoints: map[string]bool{}}
		b.endpointsOf(slots, f.endpoints)
		stale.add(staleClients{b.ids.byName[scope]: f})
	}
	return stale
}

// stayInScopes are the slots, by scope, of frontends that were seen and stay where another
// of their scope goes. A process that was killed may have left that one, and have written
// these: then nothing else tells which clients it made stale.
func (b *Backend) stayInScopes(p dataplane.Plan) map[string]string {
	out := map[string]string{}
	if len(b.scoped) == 0 {
		return out
	}
	for _, c := range p.Changes {
		if c.Container != frontends {
			continue
		}
		left, changed := scopesLeft(c), map[string]bool{}
		for _, o := range c.Deleted {
			changed[o.Key.Name] = true
		}
		for _, r := range c.Replaced {
			changed[r.Old.Key.Name] = true
		}
		for name, e := range b.scoped {
			if left[e.scope] && !changed[name] {
				out[e.scope] = e.slots[0].data
			}
		}
	}
	return out
}

// scopesLeft are those of frontends that go, or come into another.
func scopesLeft(c dataplane.Change) map[string]bool {
	left := map[string]bool{}
	for _, o := range c.Deleted {
		scope, _ := scopeAndSlots(o)
		left[scope] = true
	}
	for _, r := range c.Replaced {
		before, _ := scopeAndSlots(r.Old)
		if now, _ := scopeAndSlots(r.New); now != before {
			left[before] = true
		}
	}
	return left
}

// scopeAndSlots are those of a frontend: several texts of slots where a process was
// killed before it removed one.
func scopeAndSlots(o dataplane.Object) (scope string, slots []string) {
	if !strings.Contains(o.Body, "scope ") {
		return "", nil // as most, of which there may be very many
	}
	for a := range atoms(frontends, o.Key.Name, o.Body) {
		s, ok := shapeOf(a.set)
		switch {
		case ok && s.isSlots():
			slots = append(slots, a.data)
		case ok && s.holds == aScope:
			scope = a.data
		}
	}
	return scope, slots
}

// staleOf is about a frontend that stays in its scope. Clients of endpoints that it has
// again are not to be forgotten later.
func (b *Backend) staleOf(stale staleClients, r dataplane.Replacement) {
	scope, before := scopeAndSlots(r.Old)
	now, after := scopeAndSlots(r.New)
	if scope == "" || scope != now {
		return
	}
	id := b.ids.byName[scope]
	lost, has := map[string]bool{}, map[string]bool{}
	b.endpointsOf(after[0], has)
	for _, before := range before {
		maps.Copy(lost, b.lost(before, after[0]))
	}
	if len(lost) > 0 {
		stale.add(staleClients{id: {endpoints: lost}})
	}
	maps.DeleteFunc(has, func(e string, _ bool) bool { return lost[e] })
	for _, w := range b.late.both() {
		w.stale[id].keep(has)
	}
}

// lost returns the endpoints that one of the lists loses, as bytes.
func (b *Backend) lost(before, after string) map[string]bool {
	out := map[string]bool{}
	if before == after {
		return out
	}
	oldFirst, oldSecond, _ := strings.Cut(before, " | ")
	newFirst, newSecond, _ := strings.Cut(after, " | ")
	for _, pair := range [][2]string{{oldFirst, newFirst}, {oldSecond, newSecond}} {
		left := map[string]bool{}
		for e := range strings.SplitSeq(pair[1], ", ") {
			left[e] = true
		}
		for e := range strings.SplitSeq(pair[0], ", ") {
			if _, e = cutSlot(e); left[e] || e == "" {
				continue
			}
			if data, err := b.words.parseKey(nil, []part{address, port}, e); err == nil {
				out[string(data)] = true
			}
		}
	}
	return out
}

// cutSlot takes the number off an endpoint that was read out of order.
func cutSlot(text string) (slot, endpoint string) {
	if slot, endpoint, is := strings.Cut(text, "="); is {
		return slot, endpoint
	}
	return "", text
}

// dropScopes gives the numbers of scopes back that are gone, and of which no client is
// remembered any more.
func (b *Backend) dropScopes(stale staleClients) {
	for id, f := range stale {
		if f.gone {
			b.ids.drop(b.ids.name(id))
		}
	}
}

// forgetTries bounds how often clients that expire while they are deleted make
// the deletion begin again.
const forgetTries = 5

// forget deletes stale clients. The map of clients is read for that, which is
// why it is done only when there may be some.
func (b *Backend) forget(stale staleClients) error {
	if len(stale) == 0 {
		return nil
	}
	sets, err := b.options.Conn.Sets(b.table)
	if err != nil {
		return err
	}
	var errs []error
	for _, set := range sets {
		if s, ours := shapeOf(set.Name); ours && s.isClients() && sameSet(set, b.words.setOf(set.Name, s)) {
			errs = append(errs, b.forgetIn(set.Name, b.words.portIn(set.Name, s), stale))
		}
	}
	return errors.Join(errs...)
}

// portIn is the end of the endpoints in a map of clients that does not hold it itself,
// as the bytes of a key, empty where it does.
func (w *words) portIn(set string, s *shape) string {
	if s.holds == anEndpoint {
		return ""
	}
	data, err := w.parseKey(nil, []part{port}, strings.TrimPrefix(set, affinityAt))
	if err != nil {
		panic(err) // isPort said it is one
	}
	return string(data)
}

// mayEnd tells whether some stale client may have an endpoint with that end.
func (s staleClients) mayEnd(end string) bool {
	for _, f := range s {
		if f.gone || f.but {
			return true
		}
		for e := range f.endpoints {
			if strings.HasSuffix(e, end) {
				return true
			}
		}
	}
	return false
}

// forgetIn deletes stale clients from one map.
func (b *Backend) forgetIn(set, end string, stale staleClients) error {
	if !stale.mayEnd(end) {
		return nil
	}
	var keys [][]byte
	err := b.options.Conn.Elements(b.table, set, func() { keys = keys[:0] }, func(e nft.Element) {
		if len(e.Key) == 0 {
			return // for all other clients; others put it there
		}
		id := binary.NativeEndian.Uint32(e.Key[len(e.Key)-4:])
		if f, is := stale[id]; is && f.has(string(e.Data)+end) {
			keys = append(keys, append([]byte(nil), e.Key...))
		}
	})
	if err != nil {
		return err
	}
	return b.forgetKeys(set, keys)
}

// forgetKeys deletes clients, of whom some may be gone already.
func (b *Backend) forgetKeys(set string, keys [][]byte) error {
	for try := range forgetTries {
		if len(keys) == 0 {
			return nil
		}
		var err error
		if keys, err = b.tryToForget(set, keys, try > 0); err != nil {
			return err
		}
	}
	if len(keys) > 0 {
		return fmt.Errorf("nftables: %d clients in map %s are to be forgotten, and again and again some of them expired first", len(keys), set)
	}
	return nil
}

// tryToForget deletes all of these clients or none, and returns those that are left to
// be tried: without those that were gone, where that was why. The kernel tells of one in
// a message, so that to find all takes a message for each.
func (b *Backend) tryToForget(set string, keys [][]byte, apart bool) (left [][]byte, err error) {
	batch := nft.NewBatch(b.table)
	for i, key := range keys {
		if apart {
			batch.Apart()
		}
		batch.DeleteElement(set, nft.Element{Key: key}, i)
	}
	err = b.options.Conn.Commit(batch)
	var refused *nft.BatchError
	if err == nil || !errors.As(err, &refused) || len(refused.Refused) == 0 {
		return nil, err
	}
	gone := map[int]bool{}
	for _, r := range refused.Refused {
		if r.Err != unix.ENOENT {
			return nil, err
		}
		gone[r.Tag] = true
	}
	left = keys[:0]
	for i, key := range keys {
		if !gone[i] {
			left = append(left, key)
		}
	}
	return left, nil
}
