package trace

import (
	"net/netip"
	"strconv"

	"portolan/netfilter"
)

// ServiceChains returns the chains that a Service proxy in iptables mode may
// have for one Service port, with what they are for: for Options.Names. name is
// "namespace/name" or "namespace/name:port", protocol is in lower case, and
// endpoints are "ip:port", IPv6 in brackets.
func ServiceChains(name, protocol string, endpoints []string) map[string]string {
	out := map[string]string{}
	for _, prefix := range hashedPrefixes {
		if prefix != "KUBE-SEP-" {
			out[prefix+hash16(name+protocol)] = name + " " + purpose(prefix)
		}
	}
	for _, e := range endpoints {
		out["KUBE-SEP-"+hash16(name+protocol+e)] = name + " endpoint " + e
	}
	return out
}

// ServiceFrontends returns the addresses of one Service port with its name: for
// Options.Names, where chains do not tell Services apart. addrs are those that
// the Service answers at; a nodePort of 0 stands for none.
func ServiceFrontends(name, protocol string, addrs []netip.AddrPort, nodePort uint16) map[string]string {
	out := map[string]string{}
	for _, a := range addrs {
		out[protocol+" "+a.String()] = name
	}
	if nodePort != 0 {
		out[protocol+" :"+strconv.Itoa(int(nodePort))] = name
	}
	return out
}

// frontendOf is the Service of the address that the packet was sent to, ""
// unless Options.Names has it and the outcome is about it: the packet was
// rewritten, dropped or refused by a native table.
func (t *Tracer) frontendOf(o *Outcome) string {
	if len(o.Hops) == 0 || len(o.Steps) == 0 || !(o.DNAT || o.Verdict == Dropped || o.Verdict == Rejected) {
		return ""
	}
	if o.Steps[len(o.Steps)-1].Variant != netfilter.Native && !o.DNAT {
		return ""
	}
	h, proto := o.Hops[0], netfilter.ProtoName(o.Proto)
	if s := t.opt.Names[proto+" "+netip.AddrPortFrom(h.Dst, h.DstPort).String()]; s != "" {
		return s
	}
	if local, known := t.fib.Local(h.Dst); known && local {
		return t.opt.Names[proto+" :"+strconv.Itoa(int(h.DstPort))]
	}
	return ""
}
