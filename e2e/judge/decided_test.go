package judge

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"

	"portolan/service"
	"portolan/trace"
)

// decided is a probe with what package service says of it.
type decided struct {
	probe  probe
	target target
	class  service.Class
	route  service.Route
	passed bool // nobody answers for this address: the packet goes to the node itself
}

func (d decided) String() string {
	text := fmt.Sprintf("%s of %s, %s from %s: %v", d.target.Kind, d.target.PortName, d.target.Protocol, d.class, d.route.Verdict)
	if d.route.Verdict == service.Forward {
		text += fmt.Sprintf(" to %v, masquerade %t", addresses(d.route.Endpoints), d.route.Masquerade)
	}
	return text + ": " + d.route.Reason
}

func addresses(list []service.Endpoint) (out []netip.AddrPort) {
	for _, e := range list {
		out = append(out, e.Addr)
	}
	return out
}

// everything makes the probes of all targets: from a pod, the node, two clients
// outside, an endpoint where there is one here, and to NodePorts also over loopback.
func (r *plain) everything() (out []decided, err error) {
	add := func(t target, p probe, from string) error {
		if p, err = r.from(p, from); err != nil {
			return err
		}
		out = append(out, r.decide(t, r.stamp(p)))
		return nil
	}
	for _, t := range r.targets {
		senders := []string{visitor, judged, outside, outside}
		for _, name := range podsHere {
			if slices.ContainsFunc(t.Route(service.FromPod).Endpoints, func(e service.Endpoint) bool { return e.Addr.Addr() == r.w.Pod(name).Addr(t.Addr) }) {
				senders = append(senders, name)
				break
			}
		}
		if t.Kind == service.NodePort {
			senders = append(senders, other, stranger2)
		}
		for _, from := range senders {
			if err := add(t, t.probe(), from); err != nil {
				return nil, err
			}
		}
		if t.Kind == service.NodePort && t.Addr.Is4() {
			p := t.probe()
			p.dst = netip.AddrFrom4([4]byte{127, 0, 0, 1})
			if err := add(t, p, judged); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// decide looks up the Route of a probe.
func (r *plain) decide(t target, p probe) decided {
	d := decided{probe: p, target: t, class: r.class(p)}
	d.route = t.Route(d.class)
	switch {
	case t.Kind == service.NodePort && !r.selects(p.dst):
		// What an outside client is not answered is refused or dropped at all local
		// addresses, also where the NodePort does not answer.
		d.route = t.Route(service.FromOutside)
		d.passed = d.route.Verdict == service.Forward
	case d.route.Verdict != service.Reject && !t.admits(p.src):
		d.route = service.Route{Verdict: service.Drop, Reason: "the source ranges do not contain " + p.src.String()}
	}
	return d
}

// admits tells whether the source ranges let a client in.
func (t target) admits(src netip.Addr) bool {
	return len(t.SourceRanges) == 0 || slices.ContainsFunc(t.SourceRanges, func(p netip.Prefix) bool { return p.Contains(src) })
}

// class is where a probe comes from, as the node can tell.
func (r *plain) class(p probe) service.Class {
	d, f := r.node.Detector, service.FamilyOf(p.src)
	cidr, has := d.CIDR(f)
	_, here := r.w.ports[p.from]
	switch {
	case p.from == judged:
		return service.FromHost
	case has && cidr.Contains(p.src), d.Bridge != "" && here, d.InterfacePrefix != "" && here:
		return service.FromPod
	}
	return service.FromOutside
}

// selects tells whether NodePorts answer at an address of the node.
func (r *plain) selects(a netip.Addr) bool {
	f := service.FamilyOf(a)
	if a.IsLoopback() {
		return r.node.NodePorts.AllowsLocalhost() && a.Is4()
	}
	return r.node.NodePorts.All(f) || slices.Contains(r.node.NodePorts.Selected(f), a)
}

func outcomes(a trace.Answer) (out []string) {
	for _, o := range a.Outcomes {
		out = append(out, fmt.Sprintf("%v of %v to %v: %s", o.Share, o.Verdict, netip.AddrPortFrom(o.Dst, o.DstPort), o.Reason))
	}
	return out
}

// agrees tells in what an answer of trace is not the Route, "" if it is: the
// verdict, the set of endpoints with equal shares, and whose source they see.
func (r *plain) agrees(d decided, a trace.Answer) string {
	got := map[netip.AddrPort]*big.Rat{}
	for _, o := range a.Outcomes {
		if o.Share.Sign() == 0 {
			continue // for clients that are remembered
		}
		arrives := o.Verdict == trace.Forwarded || o.Verdict == trace.Input || o.Verdict == trace.Output
		to := netip.AddrPortFrom(o.Dst, o.DstPort)
		switch {
		case d.passed:
			if o.Verdict != trace.Input || o.DNAT {
				return fmt.Sprintf("%v %s, but nobody answers at this address", o.Verdict, o.Reason)
			}
			return ""
		case d.route.Verdict == service.Reject && o.Verdict == trace.Rejected, d.route.Verdict == service.Drop && o.Verdict == trace.Dropped:
			return ""
		case d.route.Verdict != service.Forward || !arrives || !o.DNAT:
			return fmt.Sprintf("%v %s", o.Verdict, o.Reason)
		case o.Masquerade != r.masked(d, to):
			return fmt.Sprintf("masqueraded on the way to %v: %t", to, o.Masquerade)
		}
		if got[to] == nil {
			got[to] = new(big.Rat)
		}
		got[to].Add(got[to], o.Share)
	}
	equal := big.NewRat(1, int64(max(1, len(d.route.Endpoints))))
	for _, e := range d.route.Endpoints {
		if got[e.Addr] == nil || got[e.Addr].Cmp(equal) != 0 {
			return fmt.Sprintf("%v has share %v, want %v", e.Addr, got[e.Addr], equal)
		}
		delete(got, e.Addr)
	}
	if len(got) > 0 {
		return fmt.Sprintf("not only the endpoints: %v", got)
	}
	return ""
}

// masked tells whether an endpoint sees an address of the node instead of the
// client's: as the Route says, and always when it reaches itself. An endpoint in the
// node's own network sees the client: what is delivered to the node passes no
// POSTROUTING.
func (r *plain) masked(d decided, to netip.AddrPort) bool {
	if r.w.owns(to.Addr()) && d.class != service.FromHost {
		return false
	}
	return d.route.Masquerade || to.Addr() == d.probe.src
}

// happened tells in what the kernel did not do what the Route says.
func (r *plain) happened(d decided, k fact) string {
	arrived := k.verdict == trace.Forwarded || k.verdict == trace.Input || k.verdict == trace.Output
	switch {
	case d.passed:
		if k.verdict != trace.Input || k.dst != d.probe.dst {
			return fmt.Sprintf("%v, but nobody answers at this address", k)
		}
	case d.route.Verdict == service.Reject:
		if k.verdict != trace.Rejected || k.unheard {
			return k.String()
		}
	case d.route.Verdict == service.Drop:
		if k.verdict != trace.Dropped {
			return k.String()
		}
	case !arrived || !slices.Contains(addresses(d.route.Endpoints), netip.AddrPortFrom(k.dst, k.dport)):
		return k.String()
	case r.masked(d, netip.AddrPortFrom(k.dst, k.dport)):
		if !r.w.owns(k.src) {
			return fmt.Sprintf("%v, want a source of the node", k)
		}
	case k.src != d.probe.src:
		return fmt.Sprintf("%v, want the client's source", k)
	}
	return ""
}
