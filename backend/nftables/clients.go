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

// staleClients are the remembered choices that must go: by number of the scope,
// the endpoints, as bytes, or all of them where the set is nil.
type staleClients map[uint32]map[string]bool

// add joins two of them: all clients of a scope are more than those of some endpoints.
func (s staleClients) add(more staleClients) {
	for id, endpoints := range more {
		known, there := s[id]
		switch {
		case endpoints == nil:
			s[id] = nil
		case !there:
			s[id] = maps.Clone(endpoints)
		case known != nil:
			maps.Copy(known, endpoints)
		}
	}
}

// staleClients finds what the plan makes stale: clients of a scope that goes,
// and those that remember an endpoint which a frontend loses.
func (b *Backend) staleClients(p dataplane.Plan) staleClients {
	stale := staleClients{}
	for _, c := range p.Changes {
		switch c.Container {
		case scopes:
			for _, o := range c.Deleted {
				stale[b.ids.byName[o.Key.Name]] = nil
			}
		case frontends:
			for _, r := range c.Replaced {
				b.staleOf(stale, r)
			}
		}
	}
	return stale
}

// staleOf adds the clients of the endpoints that a frontend with affinity loses.
func (b *Backend) staleOf(stale staleClients, r dataplane.Replacement) {
	scope := ""
	var before []string // several where a process was killed before it removed one
	for a := range atoms(frontends, r.Old.Key.Name, r.Old.Body) {
		s, ok := shapeOf(a.set)
		switch {
		case ok && s.isSlots():
			before = append(before, a.data)
		case ok && s.holds == aScope:
			scope = a.data
		}
	}
	if scope == "" {
		return
	}
	for a := range atoms(frontends, r.New.Key.Name, r.New.Body) {
		if s, ok := shapeOf(a.set); !ok || !s.isSlots() {
			continue
		}
		for _, before := range before {
			if lost := b.lost(before, a.data); before != a.data && len(lost) > 0 {
				stale.add(staleClients{b.ids.byName[scope]: lost})
			}
		}
	}
}

// lost returns the endpoints that one of the lists loses, as bytes.
func (b *Backend) lost(before, after string) map[string]bool {
	out := map[string]bool{}
	oldFirst, oldSecond, _ := strings.Cut(before, " | ")
	newFirst, newSecond, _ := strings.Cut(after, " | ")
	for _, pair := range [][2]string{{oldFirst, newFirst}, {oldSecond, newSecond}} {
		left := map[string]bool{}
		for e := range strings.SplitSeq(pair[1], ", ") {
			left[e] = true
		}
		for e := range strings.SplitSeq(pair[0], ", ") {
			if left[e] || e == "" {
				continue
			}
			_, e = cutSlot(e)
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
	for id, endpoints := range stale {
		if endpoints == nil {
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
	for _, endpoints := range s {
		if endpoints == nil {
			return true
		}
		for e := range endpoints {
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
		id := binary.NativeEndian.Uint32(e.Key[len(e.Key)-4:])
		endpoints, is := stale[id]
		if is && (endpoints == nil || endpoints[string(e.Data)+end]) {
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
