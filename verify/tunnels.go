package verify

import (
	"fmt"
	"net/netip"
	"slices"

	"portolan/netfilter"
	"portolan/service"
	"portolan/trace"
)

// checkTunnels finds packets that are masqueraded twice: a tunnel's packet carries
// the mark of what is in it, and is masqueraded again if the mark was not
// cleared.
func checkTunnels(w *world) (out []Finding) {
	if len(w.proxies) == 0 || w.in.Services == nil {
		return nil
	}
	for _, in := range w.host.Interfaces {
		if in.Kind != "vxlan" && in.Kind != "ipip" && in.Kind != "geneve" {
			continue
		}
		peer := w.peer(service.IPv4)
		if !peer.IsValid() {
			continue
		}
		if f, ok := w.doubleSNAT(in.Name, peer); ok {
			return []Finding{f}
		}
	}
	return nil
}

// peer is the address of another node, or of a router.
func (w *world) peer(f service.Family) netip.Addr {
	for _, n := range w.in.Nodes {
		for _, a := range n.IPs {
			if service.FamilyOf(a) == f && !w.own(a) {
				return a
			}
		}
	}
	c, _ := w.outside(f)
	return c.src
}

// doubleSNAT follows the outer packet of a Service's packet that leaves by a
// tunnel.
func (w *world) doubleSNAT(dev string, peer netip.Addr) (Finding, bool) {
	left, ok := w.markLeft()
	if !ok || left&w.in.Mark == 0 {
		return Finding{}, false
	}
	flow := trace.Flow{Src: w.ownSource(peer), SrcPort: clientPort, Dst: peer, DstPort: 8472, Proto: netfilter.UDP, Local: true, Mark: left}
	a := w.in.Tracer.Trace(flow)
	i := slices.IndexFunc(a.Outcomes, func(o trace.Outcome) bool {
		return slices.ContainsFunc(o.Steps, func(s trace.Step) bool { return s.Action == trace.ActMasquerade })
	})
	if i < 0 {
		return Finding{}, false
	}
	return Finding{
		Code: DoubleSNAT, Severity: Warning, Object: "tunnel " + dev, Owner: w.ownerOf(&a.Outcomes[i]),
		Actual:   fmt.Sprintf("what was masqueraded keeps mark 0x%x, the packet of the tunnel inherits it and is masqueraded again, with a new source port", left),
		Expected: "the mark is cleared before the packet is masqueraded",
		Fix:      "clear the mark in " + chainPostrouting + " before MASQUERADE, as current proxies do; where a network card computes checksums wrongly for such packets, this loses them",
		Link:     "https://github.com/kubernetes/kubernetes/pull/92035",
		Trace:    &a,
	}, true
}

// markLeft is the mark of a masqueraded packet when it has passed POSTROUTING.
func (w *world) markLeft() (mark uint32, ok bool) {
	for _, s := range w.served {
		if !s.addr.IsValid() || !s.addr.Is4() {
			continue
		}
		c := client{class: service.FromHost}
		for _, o := range w.in.Tracer.Trace(w.flow(c, netip.AddrPortFrom(s.addr, s.port), s.proto)).Outcomes {
			if o.DNAT && o.Masquerade {
				return o.Mark, true
			}
		}
	}
	return 0, false
}
