package verify

import (
	"net/netip"
	"slices"
	"strings"

	"portolan/netfilter"
	"portolan/service"
	"portolan/trace"
)

// Input is what is verified: a host, and what Services ask of it.
type Input struct {
	// Tracer knows the host. It must follow replies (trace.Options.Reply).
	Tracer *trace.Tracer
	// Services is nil when nothing is known of them: then only the host is looked
	// at.
	Services *service.Snapshot
}

// world is an Input with what checks ask it for.
type world struct {
	in       Input
	host     *netfilter.Host
	fib      *netfilter.FIB
	families []service.Family
	// ours tells that the chains called KUBE-... are Portolan's.
	ours  bool
	proxy Owner // whose Service rules these are, zero if there are none

	endpoints     map[netip.Addr]bool // of all Services
	common        map[service.Family][]client
	nodePortAddrs map[service.Family][]netip.Addr
}

// checks are all of them, in no particular order.
var checks = []func(*world, *Report){
	checkTraffic,
}

// Verify runs all checks. It takes time in proportion to the rules and to the
// Services, and uses all processors.
func Verify(in Input) Report {
	h := in.Tracer.Host()
	w := &world{in: in, host: h, fib: netfilter.NewFIB(h), ours: writtenByUs(h)}
	for _, f := range []service.Family{service.IPv4, service.IPv6} {
		if w.hasFamily(f) {
			w.families = append(w.families, f)
		}
	}
	w.proxy = w.findProxy()
	if in.Services != nil {
		w.prepareTraffic()
	}
	var r Report
	for _, check := range checks {
		check(w, &r)
	}
	sortFindings(r.Findings)
	return r
}

// prepareTraffic finds what all calls have in common.
func (w *world) prepareTraffic() {
	w.endpoints = map[netip.Addr]bool{}
	for s := range w.in.Services.All() {
		for _, p := range s.Ports {
			for _, e := range p.Endpoints {
				w.endpoints[e.Addr.Addr()] = true
			}
		}
	}
	w.common, w.nodePortAddrs = map[service.Family][]client{}, map[service.Family][]netip.Addr{}
	for _, f := range w.families {
		w.common[f], w.nodePortAddrs[f] = w.clients(f), w.findNodePortAddrs(f)
	}
}

// findProxy tells whose Service rules the host has.
func (w *world) findProxy() Owner {
	for _, t := range w.host.Tables {
		name := strings.TrimPrefix(strings.TrimPrefix(t.Name, "ip6 "), "ip ")
		switch {
		case t.Variant == netfilter.Native && name == portolan:
			return Owner{portolan, "the table is called " + name}
		case t.Variant == netfilter.Native && name == kubeProxy:
			return Owner{kubeProxy, "the table is called " + name}
		case t.Name == netfilter.NAT && t.Chain("KUBE-SERVICES") != nil:
			return w.ownerOfChain("KUBE-SERVICES")
		}
	}
	return Owner{}
}

// localhostNodePorts tells whether the rules are of a mode in which NodePorts
// answer on IPv4 loopback: iptables, where chain KUBE-NODEPORTS is.
func (w *world) localhostNodePorts() bool {
	return slices.ContainsFunc(w.host.Tables, func(t *netfilter.Table) bool {
		return t.Name == netfilter.NAT && t.Chain("KUBE-NODEPORTS") != nil
	})
}

// writtenByUs tells whether the Service chains are Portolan's: the last rule of
// filter KUBE-SERVICES bears its layout.
func writtenByUs(h *netfilter.Host) bool {
	for _, t := range h.Tables {
		if c := t.Chain("KUBE-SERVICES"); t.Name == netfilter.Filter && c != nil && len(c.Rules) > 0 && strings.HasPrefix(c.Rules[len(c.Rules)-1].Comment(), "portolan layout ") {
			return true
		}
	}
	return false
}

// hasFamily tells whether the host has anything of a family. A host of which no
// address is known has those of its tables.
func (w *world) hasFamily(f service.Family) bool {
	h := w.host
	if h.Have.Interfaces {
		return slices.ContainsFunc(h.Interfaces, func(in netfilter.Interfaced) bool {
			return slices.ContainsFunc(in.Addresses, func(a netfilter.InterfaceAddress) bool {
				addr := a.Prefix.Addr()
				return service.FamilyOf(addr) == f && !addr.IsLoopback() && !addr.IsLinkLocalUnicast()
			})
		})
	}
	return slices.ContainsFunc(h.Tables, func(t *netfilter.Table) bool { return t.Serves(netfilter.Family(f)) })
}
