package trace

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// ipvs is IPVS at INPUT, FORWARD and OUTPUT. Requests to a virtual server are
// sent on from where they are: what is left of the hook does not see them. It is
// false when the walk is over.
func (r *run) ipvs(h netfilter.Hook) bool {
	p := &r.pkt
	if r.ct.ipvs && r.ct.reply {
		// The answer of a real server gets the address that the client called.
		p.src, p.sport, p.ipvs = r.ct.orig.Dst, r.ct.orig.DstPort, true
		return true
	}
	if h == netfilter.Forward || p.ipvs {
		return true
	}
	s := r.tracer.host.ServerFor(p.proto, p.dst, p.dport, p.mark)
	switch {
	case s == nil:
		return r.noServer()
	case r.ct.entry == nil && p.proto == netfilter.TCP && p.flags&netfilter.SYN == 0:
		return true // begins no connection
	}
	real, why := r.schedule(s)
	if real == nil {
		r.serverStep(s, 0, ActReject, "icmp-port-unreachable", why)
		r.end(Rejected, "IPVS has no real server for "+serverName(s)+": "+why)
		return false
	}
	return r.toReal(h, s, real)
}

// noServer is where IPVS has nothing to do, as far as that is known.
func (r *run) noServer() bool {
	if r.tracer.host.Have.Servers {
		return true
	}
	for _, name := range serviceDummies {
		if in := r.tracer.host.Interface(name); in != nil && in.Has(r.pkt.dst) {
			r.end(Unknown, r.pkt.dst.String()+" is an address of "+name+", so IPVS answers there, and its virtual servers were not given")
			return false
		}
	}
	return true
}

// serviceDummies are the interfaces that IPVS proxies put Service addresses on:
// kube-proxy's and kube-router's.
var serviceDummies = []string{"kube-ipvs0", "kube-dummy-if"}

// schedule chooses a real server; why tells why there is none.
func (r *run) schedule(s *netfilter.VirtualServer) (real *netfilter.RealServer, why string) {
	if e := r.ct.entry; e != nil {
		for i := range s.Reals {
			if x := &s.Reals[i]; x.Addr == e.Reply.Src && x.Port == e.Reply.SrcPort {
				return x, ""
			}
		}
		return &netfilter.RealServer{Addr: e.Reply.Src, Port: e.Reply.SrcPort}, "" // of before
	}
	if kept, ok := r.memory.servers[s]; ok {
		for i := range s.Reals {
			if x := &s.Reals[i]; netip.AddrPortFrom(x.Addr, x.Port) == kept {
				return x, ""
			}
		}
	}
	var open []*netfilter.RealServer
	var weights []int
	for i := range s.Reals {
		x := &s.Reals[i]
		if s.Persistence > 0 && r.remembers(s, x) {
			return x, ""
		}
		if x.Weight > 0 {
			open = append(open, x)
			weights = append(weights, r.weight(s, x))
		}
	}
	switch {
	case len(s.Reals) == 0:
		return nil, "none is listed"
	case len(open) == 0:
		return nil, "all have weight 0"
	case len(open) == 1:
		real = open[0]
	default:
		r.assumeSchedule(s)
		real = open[r.oracle.among(weights)]
	}
	if s.Persistence > 0 {
		r.memory.keep(s, real)
	}
	return real, ""
}

// remembers branches on a client that was sent to a real server before.
func (r *run) remembers(s *netfilter.VirtualServer, x *netfilter.RealServer) bool {
	r.assumed.add("no virtual server remembers the client by persistence; branches where one does have share 0")
	client := r.pkt.src.String()
	if bits := s.ClientBits; bits > 0 && bits < r.pkt.src.BitLen() {
		if net, err := r.pkt.src.Prefix(bits); err == nil {
			client = net.String()
		}
	}
	return r.oracle.history(fmt.Sprintf("IPVS has sent %s to %s within the last %d s", client, endpoint(x.Addr, x.Port), s.Persistence))
}

// weight is the part that a real server gets of many connections.
func (r *run) weight(s *netfilter.VirtualServer, x *netfilter.RealServer) int {
	switch s.Scheduler {
	case "wrr", "wlc", "sed", "nq", "mh", "sh", "dh":
		return x.Weight
	}
	return 1
}

func (r *run) assumeSchedule(s *netfilter.VirtualServer) {
	switch s.Scheduler {
	case "rr", "wrr":
		r.assumed.add("whose turn it is in round robin is not known: shares are those of many connections")
	case "sh", "dh", "mh":
		r.assumed.add("scheduler " + s.Scheduler + " always chooses the same real server for one client: shares are those of many clients")
	case "fo", "ovf":
		r.assumed.add("scheduler " + s.Scheduler + " prefers the highest weight: shares are not those of the kernel")
	default:
		r.assumed.add("scheduler " + s.Scheduler + " looks at the connections there are: shares are those of an even load")
	}
}

// toReal sends the packet to a real server.
func (r *run) toReal(h netfilter.Hook, s *netfilter.VirtualServer, real *netfilter.RealServer) bool {
	p := &r.pkt
	target := endpoint(real.Addr, real.Port)
	n := 0
	for i := range s.Reals {
		if &s.Reals[i] == real {
			n = i + 1
		}
	}
	if real.Forward == netfilter.IPVSRoute || real.Forward == netfilter.IPVSTunnel {
		r.serverStep(s, n, ActContinue, target, "the packet keeps its destination and is sent to the host of the real server ("+real.Forward.String()+")")
		return r.resend(h, real.Addr)
	}
	r.serverStep(s, n, ActDNAT, target, "")
	r.attach(real)
	p.dst, p.dport = real.Addr, real.Port
	if local, known := r.tracer.fib.Local(p.dst); known && local {
		p.ipvs = true
		r.next = netfilter.Route{Type: netfilter.RouteLocal, Dev: "lo"}
		return true // the hook goes on, towards a local process
	}
	return r.resend(h, p.dst)
}

// attach has the connection's entry follow IPVS, if IPVS leaves it one.
func (r *run) attach(real *netfilter.RealServer) {
	const name = "net.ipv4.vs.conntrack"
	on, given := r.tracer.host.Sysctl(name)
	if !given && !r.tracer.host.Described && !r.tracer.host.Have.Sysctls {
		r.assumed.add(name + " was not given: taken for 1, as proxies with IPVS set it")
		on = "1"
	} else if !given {
		r.assumed.add(name + " was not given: taken for the kernel's default, 0")
	}
	r.ct.ipvs = true
	if r.ct.state&(netfilter.StateNew|netfilter.StateEstablished|netfilter.StateRelated) == 0 { // not tracked
		r.ct.orig = netfilter.Tuple{Src: r.pkt.src, Dst: r.pkt.dst, SrcPort: r.pkt.sport, DstPort: r.pkt.dport}
	}
	r.ct.dnat, r.ct.dnatSet = true, true
	r.ct.answer.Src, r.ct.answer.SrcPort = real.Addr, real.Port
	if on == "0" {
		r.ct.state, r.ct.entry = netfilter.StateUntracked, nil
	}
}

// resend puts the packet into OUTPUT, on its way to an address; IPVS does not
// look at it again.
func (r *run) resend(h netfilter.Hook, to netip.Addr) bool {
	p := &r.pkt
	p.ipvs = true
	if h == netfilter.Input {
		if p.ttl <= 1 {
			r.end(Dropped, "the TTL has run out: the host answers time exceeded")
			return false
		}
		p.ttl--
	}
	p.in, p.bridge = "", ""
	dst := p.dst
	p.dst = to
	routed := r.routeOut("IPVS has chosen " + to.String())
	p.dst = dst
	if !routed {
		return false
	}
	p.out = r.next.Dev
	if !r.hookAt(netfilter.Output) {
		return false
	}
	p.out = r.next.Dev
	if r.hookAt(netfilter.Postrouting) {
		v := Forwarded
		if r.entry == netfilter.Output {
			v = Output
		}
		r.end(v, "leaves by "+devName(p.out))
	}
	return false
}

// serverStep records what IPVS does, as the rule n of a chain that stands for the
// virtual server.
func (r *run) serverStep(s *netfilter.VirtualServer, n int, act Action, target, note string) {
	p := &r.pkt
	text := serverName(s)
	if n > 0 {
		x := s.Reals[n-1]
		text = fmt.Sprintf("-> %s %s %d", endpoint(x.Addr, x.Port), x.Forward, x.Weight)
	}
	r.steps = append(r.steps, Step{Hop: len(r.hops) - 1, Hook: r.hook, Table: "ipvs", Chain: serverName(s), Rule: n, Text: text, Action: act, Target: target, Note: note,
		Src: p.src, Dst: p.dst, DstPort: p.dport, Mark: p.mark})
}

// serverName is how a listing names a virtual server.
func serverName(s *netfilter.VirtualServer) string {
	name := strings.ToUpper(netfilter.ProtoName(s.Proto)) + " " + endpoint(s.Addr, s.Port)
	if s.Mark != 0 {
		name = "FWM " + strconv.FormatUint(uint64(s.Mark), 10)
	}
	return name + " " + s.Scheduler
}

// ipvsMatch is -m ipvs.
func (r *run) ipvsMatch(m netfilter.IPVS) value {
	switch {
	case m.Text == "":
		return is(r.pkt.ipvs != m.Not)
	case !r.pkt.ipvs:
		return is(false)
	}
	return unsure("which IPVS connection the packet belongs to is not followed (" + m.Text + ")")
}
