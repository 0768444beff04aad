package localhost

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"portolan/service"
)

// table knows which Port leads where. The zero table is not usable; see newTable.
type table struct {
	last      *service.Snapshot
	addresses []netip.Addr
	claims    map[Port][]claim // of one Port, who has it first
	ports     map[service.Name][]Port
}

// claim is what one Service asks for at a Port. The older Service has it, then the
// one of the lesser name, as everywhere.
type claim struct {
	since  time.Time
	target Target
}

func (c claim) compare(o claim) int {
	return cmp.Or(c.since.Compare(o.since), c.target.Name.Service.Compare(o.target.Name.Service))
}

func newTable() *table {
	return &table{claims: map[Port][]claim{}, ports: map[service.Name][]Port{}}
}

// target returns who answers at a Port, and whether anybody does.
func (t *table) target(p Port) (Target, bool) {
	if list := t.claims[p]; len(list) > 0 {
		return list[0].target, true
	}
	return Target{}, false
}

// update takes a Snapshot and returns the Ports that lead elsewhere than before. It
// costs what changed, unless the Node did.
func (t *table) update(s *service.Snapshot) []Port {
	prev, before := t.last, t.addresses
	t.last, t.addresses = s, Addresses(s.Node.NodePorts)
	if len(t.addresses) == 0 && len(before) == 0 {
		return nil
	}
	touched := map[Port]Target{} // with what they were
	if everything := prev == nil || len(before) == 0 || !s.Node.Equal(prev.Node); everything {
		for name := range maps.Clone(t.ports) {
			t.drop(name, touched)
		}
		for svc := range s.All() {
			t.add(s.Node, svc, touched)
		}
	} else {
		for c := range s.Changes(prev) {
			if c.Old != nil {
				t.drop(c.Old.Name, touched)
			}
			if c.New != nil {
				t.add(s.Node, c.New, touched)
			}
		}
	}
	var out []Port
	for p, was := range touched {
		if now, _ := t.target(p); !now.equal(was) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, comparePorts)
	return out
}

// touch remembers what a Port was before it changed for the first time.
func (t *table) touch(p Port, touched map[Port]Target) {
	if _, known := touched[p]; !known {
		touched[p], _ = t.target(p)
	}
}

// add takes up the claims of a Service, and remembers who answered before at what it
// touches.
func (t *table) add(node service.Node, svc *service.Service, touched map[Port]Target) {
	if len(t.addresses) == 0 {
		return
	}
	for p, target := range Ports(node, svc, t.addresses) {
		t.touch(p, touched)
		c := claim{svc.Created, target}
		at, _ := slices.BinarySearchFunc(t.claims[p], c, claim.compare)
		t.claims[p] = slices.Insert(t.claims[p], at, c)
		t.ports[svc.Name] = append(t.ports[svc.Name], p)
	}
}

// drop takes them back.
func (t *table) drop(name service.Name, touched map[Port]Target) {
	for _, p := range t.ports[name] {
		t.touch(p, touched)
		t.claims[p] = slices.DeleteFunc(t.claims[p], func(c claim) bool { return c.target.Name.Service == name })
		if len(t.claims[p]) == 0 {
			delete(t.claims, p)
		}
	}
	delete(t.ports, name)
}
