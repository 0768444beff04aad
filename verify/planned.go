package verify

import (
	"slices"
	"strings"

	"portolan/netfilter"
)

// WithPlan is a host as it would be if the Service rules of plan took the place of
// those that it has, whoever wrote them. What is not a Service proxy's stays as it is,
// with the rules of plan before it, and tables of plan registered last. Neither host is
// changed.
func WithPlan(now, plan *netfilter.Host) *netfilter.Host {
	out := withoutProxy(now)
	last := 0
	for _, t := range out.Tables {
		for _, c := range t.Chains() {
			last = max(last, c.Order)
		}
	}
	for _, t := range plan.Tables {
		out.putBefore(tableWithout(t, nil, last))
	}
	out.Interfaces = append(out.Interfaces, plan.Interfaces...)
	out.Sets = append(out.Sets, plan.Sets...)
	out.Servers = append(out.Servers, plan.Servers...)
	out.Have.Sets, out.Have.Servers = true, true
	return out.Host
}

// replanned is a Host whose tables are its own, to be written to.
type replanned struct{ *netfilter.Host }

// dummies are the interfaces that hold Service addresses.
var dummies = []string{serviceDummy, "kube-dummy-if"}

// withoutProxy is a host without anything of a Service proxy, and without
// connections, which were made with its rules.
func withoutProxy(h *netfilter.Host) replanned {
	w := &world{host: h}
	out := *h
	out.Tables, out.Servers, out.Flows = nil, nil, nil
	for _, t := range h.Tables {
		if !serviceTable(t) {
			out.Tables = append(out.Tables, tableWithout(t, func(chain string) bool { return w.ownerOfChain(chain).isProxy() }, 0))
		}
	}
	out.Interfaces = slices.DeleteFunc(slices.Clone(h.Interfaces), func(in netfilter.Interfaced) bool { return slices.Contains(dummies, in.Name) })
	out.Routes = slices.DeleteFunc(slices.Clone(h.Routes), func(r netfilter.Route) bool { return slices.Contains(dummies, r.Dev) })
	out.Sets = slices.DeleteFunc(slices.Clone(h.Sets), func(s *netfilter.Set) bool { return strings.HasPrefix(s.Name, "KUBE-") })
	return replanned{&out}
}

// tableWithout is a copy of a table without some chains and what leads to them. Chains
// of native tables count as registered later by a number of places.
func tableWithout(t *netfilter.Table, gone func(chain string) bool, later int) *netfilter.Table {
	out := netfilter.NewTable(t.Family, t.Variant, t.Name, t.File)
	out.Sets = t.Sets
	for _, c := range t.Chains() {
		if gone != nil && gone(c.Name) {
			continue
		}
		kept := out.AddChain(c.Name)
		*kept = *c
		if t.Variant == netfilter.Native && c.Hook != netfilter.NoHook {
			kept.Order += later
		}
		if gone != nil {
			kept.Rules = slices.DeleteFunc(slices.Clone(c.Rules), func(r netfilter.Rule) bool { return leadsTo(&r, gone) })
		}
	}
	return out
}

// leadsTo tells whether a rule jumps to one of some chains.
func leadsTo(r *netfilter.Rule, which func(chain string) bool) bool {
	if j, ok := r.Target.(netfilter.Jump); ok && which(j.Chain) {
		return true
	}
	return slices.ContainsFunc(r.Statements, func(s netfilter.Statement) bool {
		j, ok := s.(netfilter.Jump)
		return ok && which(j.Chain)
	})
}

// putBefore adds a table; the rules of its built-in chains come before those that are
// there.
func (h replanned) putBefore(t *netfilter.Table) {
	at := slices.IndexFunc(h.Tables, func(x *netfilter.Table) bool {
		return t.Variant != netfilter.Native && x.Variant != netfilter.Native && x.Family == t.Family && x.Name == t.Name
	})
	if at < 0 {
		h.Tables = append(h.Tables, t)
		return
	}
	there := h.Tables[at]
	for _, c := range t.Chains() {
		if old := there.Chain(c.Name); old != nil {
			old.Rules = slices.Concat(c.Rules, old.Rules)
			continue
		}
		*there.AddChain(c.Name) = *c
	}
}
