package nftables

import (
	"encoding/binary"
	"strings"

	"portolan/kernel/nft"
)

// strays are clients who remember an endpoint that no frontend of their scope has: a
// process was killed, or a write failed, after the endpoint went and before they were
// forgotten. No plan shows them, and nobody answers them as long as they keep trying,
// since every try starts their time anew. So the first look of a process and the one
// after a failure read who is remembered.
func (o *observation) strays(ours []string, entries map[string]*entry) error {
	if !o.b.doubtful {
		return nil
	}
	o.b.scoped = map[string]*entry{}
	for name, e := range entries {
		if e.scope != "" && len(e.slots) > 0 {
			o.b.scoped[name] = e
		}
	}
	known := o.b.endpointsIn(o.b.scoped)
	for _, set := range ours {
		s, _ := shapeOf(set)
		if !s.isClients() {
			continue
		}
		end := o.b.words.portIn(set, s)
		found := staleClients{}
		err := o.b.options.Conn.Elements(o.b.table, set, func() { clear(found) }, func(e nft.Element) {
			if len(e.Key) == 0 {
				return // as in forgetIn
			}
			id := binary.NativeEndian.Uint32(e.Key[len(e.Key)-4:])
			endpoint := string(e.Data) + end
			if known[id][endpoint] {
				return
			}
			if _, there := found[id]; !there {
				found[id] = forgotten{endpoints: map[string]bool{}}
			}
			found[id].endpoints[endpoint] = true
		})
		if err != nil {
			return err
		}
		o.b.late.young.stale.add(found)
	}
	return nil
}

// endpointsIn lists the endpoints of each scope, as bytes, by its number.
func (b *Backend) endpointsIn(entries map[string]*entry) map[uint32]map[string]bool {
	out := map[uint32]map[string]bool{}
	for _, e := range entries {
		if e.scope == "" {
			continue
		}
		id := b.ids.byName[e.scope]
		if out[id] == nil {
			out[id] = map[string]bool{}
		}
		for _, a := range e.slots {
			b.endpointsOf(a.data, out[id])
		}
	}
	return out
}

// endpointsOf adds the endpoints of a text of slots, as bytes.
func (b *Backend) endpointsOf(slots string, to map[string]bool) {
	for list := range strings.SplitSeq(slots, " | ") {
		for one := range strings.SplitSeq(list, ", ") {
			_, one = cutSlot(one)
			if data, err := b.words.parseKey(nil, endpointParts, one); err == nil {
				to[string(data)] = true
			}
		}
	}
}
