package verify

import (
	"net/netip"
	"slices"
	"strings"

	"portolan/dataplane"
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
	// Nodes are all of the cluster, empty when they are not known.
	Nodes []Node
	// Drift is what the proxy would write to make the kernel hold what it wants; for
	// rules that are not Portolan's it is left empty.
	Drift []dataplane.Plan
	// Mark is the bit that has packets masqueraded; 0 stands for 0x4000.
	Mark uint32
	// Loopback are the addresses at which the proxy itself answers NodePorts, in user
	// space. Only Compare asks for them.
	Loopback []netip.Addr
}

// Node is a node of the cluster: what its peers need to know.
type Node struct {
	Name string
	IPs  []netip.Addr
	Pods []netip.Prefix
}

// world is an Input with what checks ask it for.
type world struct {
	in       Input
	terse    *trace.Tracer // for what is as it should be
	host     *netfilter.Host
	fib      *netfilter.FIB
	families []service.Family
	// ours tells how it is known that the chains called KUBE-... are Portolan's, "" if
	// they are not.
	ours    string
	proxies []proxy // whose Service rules these are, the likely one first
	proxy   Owner   // of the first, zero if there are none
	served  []served
	report  Report

	endpoints     map[netip.Addr]bool // of all Services
	winners       map[claim]service.PortName
	unhooked      map[netfilter.Hook]bool // no Service rules are reached from there
	common        map[service.Family][]client
	nodePortAddrs map[service.Family][]netip.Addr
}

// checks are all of them. What is found by following packets comes first: it says
// more than what the set-up alone tells.
var checks = []func(*world) []Finding{
	checkProxy, checkTraffic, checkStale,
	checkSplitBrain, checkLeftovers, checkClaims, checkMarks, checkTunnels, checkAccounts,
	checkForwarding, checkBridges, checkLocalnet, checkIPVS, checkConntrack, checkRanges, checkAddresses, checkPods, checkNodePorts, checkNodeName, checkGateway,
	checkDrift,
}

// Verify runs all checks. It takes time in proportion to the rules and to the
// Services, and uses all processors.
func Verify(in Input) Report {
	w := newWorld(in)
	for _, check := range checks {
		w.report.Findings = append(w.report.Findings, check(w)...)
	}
	w.report.Findings = once(w.report.Findings)
	sortFindings(w.report.Findings)
	return w.report
}

// newWorld finds out what checks ask for.
func newWorld(in Input) *world {
	if in.Mark == 0 {
		in.Mark = 0x4000
	}
	h := in.Tracer.Host()
	w := &world{in: in, terse: in.Tracer.Terse(), host: h, fib: netfilter.NewFIB(h), ours: writtenByUs(h)}
	for _, f := range []service.Family{service.IPv4, service.IPv6} {
		if w.hasFamily(f) {
			w.families = append(w.families, f)
		}
	}
	w.proxies = w.findProxies()
	if len(w.proxies) > 0 {
		w.proxy = w.proxies[0].owner
	}
	w.served = w.findServed()
	if in.Services != nil {
		w.prepareTraffic()
	}
	return w
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
	w.winners = w.findWinners()
	w.common, w.nodePortAddrs = map[service.Family][]client{}, map[service.Family][]netip.Addr{}
	for _, f := range w.families {
		w.common[f], w.nodePortAddrs[f] = w.clients(f), w.findNodePortAddrs(f)
	}
}

// OwnMode is the mode of the rules that Portolan wrote on a host, "iptables",
// "nftables" or "ipvs", "" where there are none of its.
func OwnMode(h *netfilter.Host) string {
	for _, t := range h.Tables {
		if t.Variant == netfilter.Native && (t.Name == "ip "+portolan || t.Name == "ip6 "+portolan) {
			return "nftables"
		}
	}
	switch writtenByUs(h) {
	case "":
		return ""
	case ownChains:
		return "ipvs"
	}
	return "iptables"
}

// How Service chains are known to be Portolan's.
const (
	ownLayout = "a rule of filter KUBE-SERVICES bears its layout"
	ownChains = "there are chains called KUBE-PORTOLAN-*" // of ipvs mode, where there is no such rule
)

// writtenByUs tells how the Service chains are known to be Portolan's, "" if they are
// not.
func writtenByUs(h *netfilter.Host) string {
	if layoutComment(h) != "" {
		return ownLayout
	}
	for _, t := range h.Tables {
		if t.Name != netfilter.NAT && t.Name != netfilter.Filter {
			continue
		}
		for _, c := range t.Chains() {
			if strings.HasPrefix(c.Name, treePrefix) {
				return ownChains
			}
		}
	}
	return ""
}

// CompactLayout tells whether the rules that Portolan wrote on a host have its compact
// layout.
func CompactLayout(h *netfilter.Host) bool {
	return strings.HasPrefix(layoutComment(h), layoutBegin+"compact ")
}

const layoutBegin = "portolan layout "

// layoutComment is that of the rule of filter KUBE-SERVICES that bears the layout,
// empty where there is none.
func layoutComment(h *netfilter.Host) string {
	for _, t := range h.Tables {
		c := t.Chain(chainServices)
		if t.Name != netfilter.Filter || c == nil {
			continue
		}
		for i := len(c.Rules) - 1; i >= 0; i-- {
			if comment := c.Rules[i].Comment(); strings.HasPrefix(comment, layoutBegin) {
				return comment
			}
		}
	}
	return ""
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
