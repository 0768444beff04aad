package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan/dataplane"
	"portolan/kernel/ipset"
	"portolan/kernel/ipvs"
	"portolan/service"
)

// Render returns what one Service asks for in this family. The error names a word
// that cannot stand in a rule.
func (b *Backend) Render(node service.Node, svc *service.Service) ([]dataplane.Object, error) {
	if err := checkText(node, svc); err != nil {
		return nil, err
	}
	r := rendering{b: b, node: node, svc: svc}
	for _, pf := range service.Decide(node, svc, b.options.Family) {
		r.port(pf)
	}
	for id, used := range r.used {
		if used {
			r.objects = append(r.objects, b.rules[id]...)
		}
	}
	return r.objects, nil
}

// rendering collects what a Service asks for.
type rendering struct {
	b       *Backend
	node    service.Node
	svc     *service.Service
	objects []dataplane.Object
	used    [setCount]bool  // sets with a member
	hidden  map[uint16]bool // ports of the cluster IP that only rules lead to
}

// port adds what one Service port needs: for each address a virtual server, its
// membership in the sets that the rules match with, and the address on the device.
// Endpoints on this node are in KUBE-LOOP-BACK, so that a pod that reaches itself is
// masqueraded. An address that an interface of this node has already is not put on the
// device.
func (r *rendering) port(pf service.PortFrontends) {
	protocol := protocols[string(pf.Port.Protocol)]
	for i := range pf.Frontends {
		f := &pf.Frontends[i]
		if f.Kind == service.NodePort {
			r.nodePort(f, protocol)
			continue
		}
		if f.Kind == service.ClusterIP || !slices.Contains(r.node.NodePorts.Local, f.Addr) {
			r.address(f.Addr)
		}
		t := r.target(ipvs.ID{Protocol: protocol, Addr: netip.AddrPortFrom(f.Addr, f.Port)}, f, f.Route(service.FromOutside))
		r.joinSets(t, f, pf.Frontends)
		r.server(t)
		if f.Kind == service.ClusterIP && f.Route(service.FromOutside).Verdict == service.Forward {
			r.objects = append(r.objects, r.b.markClusterIPs(r.node, f))
		}
	}
	for _, e := range pf.Port.Endpoints {
		if service.FamilyOf(e.Addr.Addr()) == r.b.options.Family && e.LocalTo(r.node.Name) {
			addr := e.Addr.Addr()
			r.entry(loopBack, ipset.Entry{Addr: addr, Protocol: uint8(protocol), Port: e.Addr.Port(), Source: netip.PrefixFrom(addr, addr.BitLen())})
		}
	}
	if port := r.svc.HealthCheckNodePort; port != 0 {
		r.entry(healthCheckNodePort, ipset.Entry{Port: port})
	}
	r.inside(pf, protocol)
}

// target is the virtual server of a frontend with the endpoints of a route. Where
// packets are dropped there is none: IPVS refuses what it has no real server for.
func (r *rendering) target(id ipvs.ID, f *service.Frontend, route service.Route) *target {
	t := &target{server: ipvs.Server{ID: id}}
	switch route.Verdict {
	case service.Drop:
		t.join(portolanDrop)
		return t
	case service.Forward, service.Reject:
		ratios := service.Ratios(route.Endpoints)
		t.server.Scheduler = r.b.scheduler(r.svc, slices.ContainsFunc(ratios, func(n int) bool { return n != 1 }))
		t.server.Persistence = f.Affinity
		if t.server.Scheduler == "mh" {
			t.server.Flags = ipvs.SchedulerPort // as kube-proxy does
		}
		for i, e := range route.Endpoints {
			t.reals = append(t.reals, ipvs.Real{Addr: e.Addr, Weight: uint32(ratios[i])})
		}
		return t
	}
	panic(fmt.Sprintf("ipvs: unknown verdict %v", route.Verdict))
}

// joinSets makes the target a member of the sets that its kind of address has.
func (r *rendering) joinSets(t *target, f *service.Frontend, all []service.Frontend) {
	local := f.Route(service.FromOutside).Policy == service.Local
	switch f.Kind {
	case service.ClusterIP:
		t.join(clusterIP)
	case service.ExternalIP:
		if local {
			t.join(externalIPLocal)
		} else {
			t.join(externalIP)
		}
	case service.LoadBalancerIP:
		t.join(loadBalancer)
		if local {
			t.join(loadBalancerLocal)
		}
		if sources := limits(f); sources != nil {
			t.join(loadBalancerFW)
			for _, p := range sources {
				t.join(sourceSet(p, all), p.Masked())
			}
		}
	default:
		panic(fmt.Sprintf("ipvs: unknown kind of frontend %v", f.Kind))
	}
}

// limits are the ranges that the clients of a frontend are limited to; nil when they
// are not, or when nobody gets an answer anyway.
func limits(f *service.Frontend) []netip.Prefix {
	answers := slices.ContainsFunc(f.Routes[:], func(r service.Route) bool { return r.Verdict != service.Reject })
	everybody := slices.ContainsFunc(f.SourceRanges, func(p netip.Prefix) bool { return p.Bits() == 0 })
	if !answers || everybody || len(f.SourceRanges) == 0 {
		return nil
	}
	return f.SourceRanges
}

// sourceSet is where kube-proxy has a source: load balancer addresses, by which this
// node calls itself, apart from the ranges of the Service.
func sourceSet(p netip.Prefix, all []service.Frontend) setID {
	if p.IsSingleIP() && slices.ContainsFunc(all, func(f service.Frontend) bool { return f.Kind == service.LoadBalancerIP && f.Addr == p.Addr() }) {
		return loadBalancerSourceIP
	}
	return loadBalancerSourceCIDR
}

// nodePort has a virtual server on each address of the node that NodePorts answer on.
func (r *rendering) nodePort(f *service.Frontend, protocol ipvs.Protocol) {
	route := f.Route(service.FromOutside)
	local := route.Policy == service.Local
	for _, addr := range nodePortAddrs(r.node, r.b.options.Family) {
		t := r.target(ipvs.ID{Protocol: protocol, Addr: netip.AddrPortFrom(addr, f.Port)}, f, route)
		if protocol == ipvs.SCTP {
			t.join(nodePortSCTP)
			if local {
				t.join(nodePortLocalSCTP)
			}
		}
		r.server(t)
	}
	all, keeps := nodePortTCP, nodePortLocalTCP
	switch protocol {
	case ipvs.SCTP:
		return
	case ipvs.UDP:
		all, keeps = nodePortUDP, nodePortLocalUDP
	}
	r.entry(all, ipset.Entry{Port: f.Port})
	if local {
		r.entry(keeps, ipset.Entry{Port: f.Port})
	} else { // the port is this Service's: nobody else's policy holds for it
		claim := r.b.entry(keeps, strconv.Itoa(int(f.Port)))
		claim.Body = ""
		r.objects = append(r.objects, claim)
	}
}

// nodePortAddrs are the addresses of this node that NodePorts answer on. Loopback is
// not among them: IPVS never sees what is sent there.
func nodePortAddrs(node service.Node, f service.Family) []netip.Addr {
	list := node.NodePorts.Selected(f)
	if node.NodePorts.All(f) {
		list = slices.Clone(node.NodePorts.Local)
		slices.SortFunc(list, netip.Addr.Compare)
		list = slices.Compact(list)
	}
	return slices.DeleteFunc(list, func(a netip.Addr) bool {
		return service.FamilyOf(a) != f || a.IsLoopback() || a.IsLinkLocalUnicast() && f == service.IPv6
	})
}

func (r *rendering) address(a netip.Addr) {
	r.objects = append(r.objects, dataplane.Object{
		Key:  dataplane.Key{Container: addressesContainer, Rank: dataplane.Keyed, Name: a.String()},
		Body: a.String(),
	})
}

func (r *rendering) server(t *target) {
	for id := range t.members {
		r.used[id] = r.used[id] || len(t.members[id]) > 0
	}
	r.objects = append(r.objects, dataplane.Object{
		Key:  dataplane.Key{Container: serversContainer, Rank: dataplane.Keyed, Name: nameOf(t.server.ID)},
		Body: r.b.body(t),
	})
}

func (r *rendering) entry(id setID, e ipset.Entry) {
	r.used[id] = true
	r.objects = append(r.objects, r.b.entry(id, sets[id].typ.Text(e)))
}

// checkText refuses what would break out of a rule. Names come from validated
// objects, so this is the last line of defence.
func checkText(node service.Node, svc *service.Service) error {
	texts := []string{svc.Name.Namespace, svc.Name.Name, node.Detector.Bridge, node.Detector.InterfacePrefix}
	for _, p := range svc.Ports {
		if protocols[string(p.Protocol)] == 0 {
			return fmt.Errorf("ipvs: render %s: protocol %q is not known", svc.Name, p.Protocol)
		}
		texts = append(texts, p.Name)
	}
	breaksOut := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"'\\`$;#!", r) }
	for _, t := range texts {
		if len(t) > 63 || strings.ContainsFunc(t, breaksOut) {
			return fmt.Errorf("ipvs: render %s: %q cannot stand in a rule", svc.Name, t)
		}
	}
	return nil
}
