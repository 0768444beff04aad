package verify

import (
	"net/netip"
	"slices"

	"portolan/netfilter"
	"portolan/service"
	"portolan/trace"
)

// checkLocalnet: with route_localnet neighbours can reach what listens on
// loopback only, unless a rule stops them.
func checkLocalnet(w *world) (out []Finding) {
	if w.in.Services == nil || len(w.proxies) == 0 {
		return nil
	}
	c, ok := w.outside(service.IPv4)
	dev := w.fib.Lookup(netfilter.Question{Dst: c.src}).Dev
	if v, given := w.host.ConfSysctl(netfilter.IPv4, dev, "route_localnet"); !ok || !given || v == "0" {
		return nil
	}
	return w.localnetOpen(c)
}

// localnetOpen follows a packet of a neighbour to loopback.
func (w *world) localnetOpen(c client) []Finding {
	flow := w.flow(c, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 10249), netfilter.TCP)
	a := w.in.Tracer.Trace(flow)
	if !slices.ContainsFunc(a.Outcomes, func(o trace.Outcome) bool { return o.Verdict == trace.Input && o.Certain }) {
		return nil
	}
	return []Finding{{
		Code: LocalnetOpen, Severity: Warning, Object: "route_localnet", Owner: w.proxy,
		Actual:   "it is 1, and no rule drops packets of neighbours to 127.0.0.0/8: they reach what listens on loopback only",
		Expected: "a rule that drops them, as kubelet and proxies write it in KUBE-FIREWALL",
		Fix:      "sysctl -w net.ipv4.conf.all.route_localnet=0 where NodePorts on localhost are not needed, else have the proxy write its rules anew",
		Link:     "https://github.com/kubernetes/kubernetes/issues/92315", Trace: &a,
	}}
}
