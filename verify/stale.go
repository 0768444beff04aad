package verify

import (
	"cmp"
	"net/netip"
	"slices"

	"portolan/netfilter"
	"portolan/service"
	"portolan/trace"
)

// checkStale finds what Service rules do about addresses and ports that no Service
// asks for.
func checkStale(w *world) (out []Finding) {
	if w.in.Services == nil {
		return nil
	}
	wanted := w.wanted()
	seen := map[served]bool{}
	for _, s := range w.served {
		what := served{addr: s.addr, port: s.port, proto: s.proto}
		if seen[what] || wanted[what] || s.addr.IsValid() && wanted[served{port: s.port, proto: s.proto}] && w.own(s.addr) {
			continue
		}
		seen[what] = true
		if f, ok := w.stale(s); ok {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b Finding) int { return cmp.Compare(a.Object, b.Object) })
	return out
}

// wanted are the addresses and ports of all Services, NodePorts without address.
func (w *world) wanted() map[served]bool {
	out := map[served]bool{}
	for s := range w.in.Services.All() {
		for _, pf := range w.decided(s) {
			for _, fe := range pf.Frontends {
				proto, _ := netfilter.ProtoByName(string(fe.Protocol))
				out[served{addr: fe.Addr, port: fe.Port, proto: proto}] = true
			}
		}
	}
	return out
}

// own tells whether the host has the address.
func (w *world) own(a netip.Addr) bool {
	local, _ := w.fib.Local(a)
	return local
}

// stale follows a packet to what nobody asks for. It is worth telling when
// somebody answers there, or the packet is stopped.
func (w *world) stale(s served) (Finding, bool) {
	to := netip.AddrPortFrom(s.addr, s.port)
	family := service.IPv4
	if s.addr.IsValid() {
		family = service.FamilyOf(s.addr)
	} else if addrs := w.nodePortAddrs[family]; len(addrs) > 0 {
		to = netip.AddrPortFrom(addrs[0], s.port)
	}
	clients := w.common[family]
	if !to.Addr().IsValid() || len(clients) == 0 {
		return Finding{}, false
	}
	a := w.in.Tracer.Trace(w.flow(clients[len(clients)-1], to, s.proto))
	o := &a.Outcomes[0]
	name := to.String() + "/" + netfilter.ProtoName(s.proto)
	f := Finding{Code: FrontendStale, Object: name, Expected: "no Service asks for it", Owner: w.ownerOf(o), Trace: &a,
		Fix: "have " + w.proxyName() + " write its rules anew: restart it"}
	if i := slices.IndexFunc(o.Steps, func(s trace.Step) bool { return s.Action == trace.ActDNAT }); i >= 0 {
		f.Owner = w.ownerOfStep(&o.Steps[i])
	}
	if s.name != "" {
		f.Actual = "the rules of " + s.name + " are still there: "
	}
	switch d := decider(o); {
	case o.DNAT:
		f.Severity, f.Actual = Error, f.Actual+"connections go to "+ends(a)
	case d != nil && (d.Chain == chainServices || w.ownerOfStep(d).isProxy()):
		f.Severity, f.Actual = Warning, f.Actual+o.Reason
	default:
		return Finding{}, false
	}
	return f, true
}

// ends lists where the outcomes of an answer lead.
func ends(a trace.Answer) string {
	var list []string
	for i := range a.Outcomes {
		if o := &a.Outcomes[i]; o.Share.Sign() > 0 {
			if to := netip.AddrPortFrom(o.Dst, o.DstPort).String(); !slices.Contains(list, to) {
				list = append(list, to)
			}
		}
	}
	return some(list)
}
