package verify

import (
	"net/netip"
	"slices"

	"portolan/netfilter"
	"portolan/service"
)

// target is one address and port that connections go to, with the frontend that
// answers there.
type target struct {
	fe service.Frontend
	to netip.AddrPort
}

// targets are the addresses of a frontend. A NodePort answers at every address
// of the host that is selected; of each interface one is tried.
func (w *world) targets(f service.Family, fe service.Frontend) []target {
	if fe.Kind != service.NodePort {
		return []target{{fe, netip.AddrPortFrom(fe.Addr, fe.Port)}}
	}
	var out []target
	for _, a := range w.nodePortAddrs[f] {
		out = append(out, target{fe, netip.AddrPortFrom(a, fe.Port)})
	}
	return out
}

// findNodePortAddrs chooses the addresses at which NodePorts of a family are
// tried: one of each interface.
func (w *world) findNodePortAddrs(f service.Family) []netip.Addr {
	ports := w.in.Services.Node.NodePorts
	only, limited := w.listedNodePortIPs(f)
	answers := func(a netip.Addr) bool {
		if limited && len(ports.Prefixes) == 0 {
			return slices.Contains(only, a)
		}
		if a.IsLoopback() {
			return f == service.IPv4 && w.mode() == "iptables" && ports.AllowsLocalhost()
		}
		return ports.All(f) || slices.ContainsFunc(ports.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	var out []netip.Addr
	for _, in := range w.host.Interfaces {
		for _, own := range in.Addresses {
			a := own.Prefix.Addr()
			if service.FamilyOf(a) == f && !a.IsLinkLocalUnicast() && in.Name != serviceDummy && !w.isAnycast(a) && answers(a) {
				out = append(out, a)
				break
			}
		}
	}
	if ip, ok := w.in.Services.Node.IP(f); ok && !w.host.Have.Interfaces && answers(ip) {
		out = append(out, ip)
	}
	return out
}

// isAnycast tells whether an address is the subnet router's of a network of this
// host (RFC 4291, 2.6.1): to the kernel it is of type anycast and not local, also
// where an interface has it, as the vxlan device of flannel has.
func (w *world) isAnycast(a netip.Addr) bool {
	return slices.ContainsFunc(w.host.Routes, func(r netfilter.Route) bool {
		return r.Type == netfilter.RouteAnycast && r.To.Addr() == a && r.To.IsSingleIP()
	})
}

// listedNodePortIPs are the addresses at which NodePorts answer in kube-proxy's
// nftables mode: without nodePortAddresses that is the node's first address, which
// the table lists. ok is false where the rules are of another kind.
func (w *world) listedNodePortIPs(f service.Family) (out []netip.Addr, ok bool) {
	for _, t := range w.host.Tables {
		if !serviceTable(t) || !t.Serves(netfilter.Family(f)) {
			continue
		}
		if s := t.Set("nodeport-ips"); s != nil {
			for i := range s.Elements {
				if a, valid := netip.AddrFromSlice([]byte(s.Elements[i].First)); valid {
					out = append(out, a)
				}
			}
			return out, true
		}
	}
	return nil, false
}

// serviceDummy is the interface that ipvs mode puts Service addresses on.
const serviceDummy = "kube-ipvs0"

// expectation is what should become of a client at a target.
type expectation struct {
	service.Route
	closed bool // the client is outside of the source ranges
}

// expect is what the Service asks for. src is the address the client calls from.
func (w *world) expect(fe *service.Frontend, c client, src netip.Addr) expectation {
	class := c.class
	if cidr, ok := w.in.Services.Node.Detector.CIDR(service.FamilyOf(src)); ok && cidr.Contains(src) {
		// Also when the node itself calls from its address on the pod network.
		class = service.FromPod
	}
	e := expectation{Route: fe.Route(class)}
	if len(fe.SourceRanges) > 0 && e.Verdict == service.Forward && !slices.ContainsFunc(fe.SourceRanges, func(p netip.Prefix) bool { return p.Contains(src) }) {
		e.Verdict, e.closed, e.Endpoints = service.Drop, true, nil
		e.Reason = "the source ranges do not have the client"
	}
	return e
}

// knows tells whether an address is among the endpoints.
func (e *expectation) knows(a netip.AddrPort) bool {
	return slices.ContainsFunc(e.Endpoints, func(x service.Endpoint) bool { return x.Addr == a })
}
