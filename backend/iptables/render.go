package iptables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan/dataplane"
	"portolan/service"
)

// Render returns the lines of one Service in this family. The error names a
// word that cannot stand in a rule.
func (b *Backend) Render(node service.Node, svc *service.Service) ([]dataplane.Object, error) {
	if err := checkText(node, svc); err != nil {
		return nil, err
	}
	s := newSheet()
	for _, pf := range service.Decide(node, svc, b.options.Family) {
		p := b.newPort(s, node, pf)
		p.entries()
		p.healthCheck(svc.HealthCheckNodePort)
		p.balancers()
		p.externalChains()
		if b.options.Layout == Compact {
			p.hairpins()
		} else {
			p.endpointChains()
		}
	}
	return s.objects(), nil
}

// port writes the lines of one Service port.
type port struct {
	*sheet
	b     *Backend
	node  service.Node
	pf    service.PortFrontends
	name  string // kube-proxy's service port name
	match string // "-m tcp -p tcp"
	// The chains, as containers. A Service whose endpoints are all elsewhere or
	// gone does not use each of them.
	cluster, local, ext, fw string
}

func (b *Backend) newPort(s *sheet, node service.Node, pf service.PortFrontends) *port {
	protocol := string(pf.Port.Protocol)
	p := &port{sheet: s, b: b, node: node, pf: pf, name: pf.Name.String(), match: "-m " + protocol + " -p " + protocol}
	h := hash(p.name, protocol, "")
	p.cluster, p.local, p.ext, p.fw = clusterChain+h, localChain+h, externalChain+h, firewallChain+h
	return p
}

// policyChain is the container that balances over one list of endpoints.
func (p *port) policyChain(policy service.Policy) string {
	if policy == service.Local {
		return p.local
	}
	return p.cluster
}

// answers tells whether anybody's connections to the frontend are translated.
func answers(f *service.Frontend) bool {
	for i := range f.Routes {
		if f.Routes[i].Verdict == service.Forward {
			return true
		}
	}
	return false
}

// limited tells whether the frontend is reached through KUBE-FW.
func limited(f *service.Frontend) bool { return len(f.SourceRanges) > 0 && answers(f) }

// entries are the lines in the shared chains: one address or NodePort each, by
// which two Services can contend for it.
func (p *port) entries() {
	for i := range p.pf.Frontends {
		switch f := &p.pf.Frontends[i]; f.Kind {
		case service.ClusterIP:
			p.clusterIP(f)
		case service.ExternalIP:
			p.externalIP(f, "external IP")
		case service.LoadBalancerIP:
			p.externalIP(f, "loadbalancer IP")
		case service.NodePort:
			p.nodePort(f)
		default:
			panic(fmt.Sprintf("iptables: unknown kind of frontend %v", f.Kind))
		}
	}
}

func (p *port) healthCheck(nodePort uint16) {
	if nodePort != 0 {
		dport := strconv.Itoa(int(nodePort))
		p.portLine(filterNodePort, service.TCP, nodePort, dport+" "+p.name,
			`-m comment --comment "`, p.name, ` health check node port" -m tcp -p tcp --dport `, dport, " -j ACCEPT")
	}
}

// clusterIP writes the lines of a cluster IP.
func (p *port) clusterIP(f *service.Frontend) {
	addr, dport := f.Addr.String(), strconv.Itoa(int(f.Port))
	key := addr + " " + string(f.Protocol) + " " + dport
	route := f.Route(service.FromOutside) // a verdict on cluster IPs is the same for everybody
	if route.Verdict == service.Forward {
		p.addressLine(natServices, f.Addr, key, `-m comment --comment "`, p.name, ` cluster IP" `, p.match,
			" -d ", addr, " --dport ", dport, " -j ", chainOf(p.policyChain(route.Policy)))
		p.addressLine(filterServices, f.Addr, key)
		return
	}
	p.addressLine(natServices, f.Addr, key)
	comment, target := refusal(route)
	p.addressLine(filterServices, f.Addr, key, `-m comment --comment "`, p.name, comment, `" `, p.match,
		" -d ", addr, " --dport ", dport, " -j ", target)
}

// externalIP also does load balancer addresses. What is refused is what comes
// from outside: where it is not forwarded but others' is, theirs is translated
// in nat already when it comes to filter.
func (p *port) externalIP(f *service.Frontend, kind string) {
	addr, dport := f.Addr.String(), strconv.Itoa(int(f.Port))
	key := addr + " " + string(f.Protocol) + " " + dport
	to := p.ext
	if limited(f) {
		to = p.fw
	}
	if answers(f) {
		p.addressLine(natServices, f.Addr, key, `-m comment --comment "`, p.name, " ", kind, `" `, p.match,
			" -d ", addr, " --dport ", dport, " -j ", chainOf(to))
	} else {
		p.addressLine(natServices, f.Addr, key)
	}
	if route := f.Route(service.FromOutside); route.Verdict == service.Forward {
		p.addressLine(filterExternal, f.Addr, key)
	} else {
		comment, target := refusal(route)
		p.addressLine(filterExternal, f.Addr, key, `-m comment --comment "`, p.name, comment, `" `, p.match,
			" -d ", addr, " --dport ", dport, " -j ", target)
	}
	if to != p.fw {
		p.addressLine(filterProxyFW, f.Addr, key)
		return
	}
	p.addressLine(filterProxyFW, f.Addr, key, `-m comment --comment "`, p.name, " traffic not accepted by ", chainOf(p.fw), `" `,
		p.match, " -d ", addr, " --dport ", dport, " -j DROP")
}

// nodePortAnywhere ends the name of the line by which a NodePort answers on every
// address that it answers on.
const nodePortAnywhere = "/node"

// nodePort writes the lines of a NodePort, which has no address.
func (p *port) nodePort(f *service.Frontend) {
	dport := strconv.Itoa(int(f.Port))
	key := dport + "/" + string(f.Protocol)
	if p.b.options.Family == service.IPv4 {
		p.portLine(natNodePorts, f.Protocol, f.Port, key+"/localhost", p.localhostNodePort(f, dport)...)
	}
	if answers(f) {
		p.portLine(natNodePorts, f.Protocol, f.Port, key+nodePortAnywhere, "-m comment --comment ", p.name, " ", p.match,
			" --dport ", dport, " -j ", chainOf(p.ext))
	} else {
		p.portLine(natNodePorts, f.Protocol, f.Port, key+nodePortAnywhere)
	}
	p.nodePortRefusal(f, dport, key)
}

// nodePortRefusal refuses connections to addresses of the node. In a tree it is asked
// once whether the address is one.
func (p *port) nodePortRefusal(f *service.Frontend, dport, key string) {
	route := f.Route(service.FromOutside)
	comment, target := refusal(route)
	root, local := filterExternal, "-m addrtype --dst-type LOCAL "
	if p.b.options.Layout == Compact {
		if route.Verdict != service.Forward {
			p.rule(root, servicesRank, "filter ports", local, "-j ", chainOf(filterNodePortRefusals))
		}
		root, local = filterNodePortRefusals, ""
	}
	if route.Verdict == service.Forward {
		p.portLine(root, f.Protocol, f.Port, key)
		return
	}
	p.portLine(root, f.Protocol, f.Port, key, `-m comment --comment "`, p.name, comment, `" `, local,
		p.match, " --dport ", dport, " -j ", target)
}

// localhostNodePort counts connections to a NodePort over loopback.
func (p *port) localhostNodePort(f *service.Frontend, dport string) []string {
	if !answers(f) || !p.b.options.Nfacct.LocalhostAccepted || !p.b.localhost(p.node) {
		return nil
	}
	return []string{"-m comment --comment ", p.name, " ", p.match, " -d 127.0.0.0/8 --dport ", dport,
		" -m nfacct --nfacct-name ", LocalhostAcceptedCounter, " -j ", chainOf(p.ext)}
}

// refusal returns the end of the comment and the target for a route whose verdict
// is not Forward.
func refusal(r service.Route) (comment, target string) {
	comment, target = " has no endpoints", "REJECT"
	if r.Elsewhere {
		comment = " has no local endpoints"
	}
	if r.Verdict == service.Drop {
		target = "DROP"
	}
	return comment, target
}

// checkText refuses what would break out of a rule. Names come from validated
// objects, so this is the last line of defence.
func checkText(node service.Node, svc *service.Service) error {
	texts := []string{svc.Name.Namespace, svc.Name.Name, node.Detector.Bridge, node.Detector.InterfacePrefix}
	for _, p := range svc.Ports {
		if !slices.Contains([]service.Protocol{service.TCP, service.UDP, service.SCTP}, p.Protocol) {
			return fmt.Errorf("iptables: render %s: protocol %q is not known", svc.Name, p.Protocol)
		}
		texts = append(texts, p.Name)
	}
	breaksOut := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"'\\`$;#!", r) }
	for _, t := range texts {
		if len(t) > 63 || strings.ContainsFunc(t, breaksOut) {
			return fmt.Errorf("iptables: render %s: %q cannot stand in a rule", svc.Name, t)
		}
	}
	return nil
}
