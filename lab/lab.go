package lab

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
)

// Lab is a running little cluster. Its methods may be called from several
// goroutines.
type Lab struct {
	Client *Host

	home      *os.File
	dir       string   // lock files and links to programs; the only thing outside the kernel
	held      *os.File // dir, locked
	podMTU    int
	sctp      bool
	fabric    Host // the switch
	gateway   Host // see addGateway
	nodes     []*Node
	switchNow int // ports of the switch so far

	mu        sync.Mutex
	pods      map[string]*Pod
	podsMade  int
	commands  map[*Cmd]struct{}
	gone      uint64   // packets sent by pods that are no more
	manifests []string // see Publish
	closed    bool
}

// New builds a lab. Needs the right to make network namespaces: root, or a user
// namespace (see EnterUserNamespace). After an error nothing is left.
func New(t Topology) (*Lab, error) {
	home, err := os.Open(ownNetwork)
	if err != nil {
		return nil, fmt.Errorf("lab: own network namespace: %w", err)
	}
	l := &Lab{home: home, podMTU: t.PodMTU, sctp: t.SCTP, pods: map[string]*Pod{}, commands: map[*Cmd]struct{}{}}
	if err := l.build(t); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// build makes everything in the order in which it is needed: the switch, whoever plugs
// into it, the routes, and at last the pods.
func (l *Lab) build(t Topology) error {
	var err error
	if l.dir, l.held, err = newDir(); err != nil {
		return err
	}
	if l.fabric, err = l.newHost("switch", nil,
		sysctl{path: "net/bridge/bridge-nf-call-iptables", value: "0", optional: true},
		sysctl{path: "net/bridge/bridge-nf-call-ip6tables", value: "0", optional: true}); err != nil {
		return err
	}
	if err := l.fabric.bridge("switch"); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	client, err := l.newHost("client", t.Client)
	if err != nil {
		return err
	}
	l.Client = &client
	if err := l.join(l.Client); err != nil {
		return err
	}
	if err := l.addGateway(); err != nil {
		return err
	}
	for _, spec := range t.Nodes {
		if err := l.addNode(spec); err != nil {
			return err
		}
	}
	if err := l.routePods(t.PodNetwork); err != nil {
		return err
	}
	if err := l.routeServices(t.Routes); err != nil {
		return err
	}
	for _, spec := range t.Pods {
		if _, err := l.AddPod(spec); err != nil {
			return err
		}
	}
	return l.settle(!t.PodNetwork)
}

// join plugs a host into the switch with all its addresses.
func (l *Lab) join(h *Host) error {
	l.switchNow++
	var addrs []netip.Prefix
	for _, a := range h.Addrs {
		addrs = append(addrs, netip.PrefixFrom(a, switchNetwork(a).Bits()))
	}
	if err := l.fabric.plug("switch", fmt.Sprintf("port%d", l.switchNow), false, h, addrs...); err != nil {
		return fmt.Errorf("lab: host %s: %w", h.Name, err)
	}
	return nil
}

// addNode makes a node with its pod bridge, cni0, and the default routes to the gateway.
func (l *Lab) addNode(spec NodeSpec) error {
	host, err := l.newHost(spec.Name, spec.Addrs, router...)
	if err != nil {
		return err
	}
	n := &Node{Host: host, pods: spec.Pods}
	l.nodes = append(l.nodes, n)
	if err := l.join(&n.Host); err != nil {
		return err
	}
	var addrs []netip.Prefix
	for _, p := range spec.Pods {
		n.Bridge = append(n.Bridge, bridgeAddr(p))
		addrs = append(addrs, netip.PrefixFrom(bridgeAddr(p), p.Bits()))
	}
	if err := n.bridge("cni0", addrs...); err != nil {
		return fmt.Errorf("lab: node %s: %w", spec.Name, err)
	}
	for _, gw := range GatewayAddrs {
		if n.Addr(gw).IsValid() {
			if err := n.route(netip.Prefix{}, gw); err != nil {
				return err
			}
		}
	}
	return nil
}

// routePods tells everybody where the pods are, but for the nodes that are members
// of a pod network.
func (l *Lab) routePods(network bool) error {
	for _, to := range l.nodes {
		from := []*Host{l.Client, &l.gateway}
		for _, n := range l.nodes {
			if n != to && !(network && len(n.pods) > 0) {
				from = append(from, &n.Host)
			}
		}
		for _, p := range to.pods {
			via := to.Addr(p.Addr())
			for _, h := range from {
				if !h.Addr(via).IsValid() {
					continue
				}
				if err := h.route(p, via); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// routeServices tells the client which node answers for Services.
func (l *Lab) routeServices(routes []RouteSpec) error {
	for _, r := range routes {
		n := l.Node(r.Node)
		if n == nil {
			return fmt.Errorf("lab: route to %v: no node %q", r.To, r.Node)
		}
		if via := n.Addr(r.To.Addr()); via.IsValid() && l.Client.Addr(via).IsValid() {
			if err := l.Client.route(r.To, via); err != nil {
				return err
			}
		}
	}
	return nil
}

// Nodes lists the nodes in the order of the topology.
func (l *Lab) Nodes() []*Node { return l.nodes }

// Node finds a node by name; nil if there is none.
func (l *Lab) Node(name string) *Node {
	for _, n := range l.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Packets counts the packets that hosts of the lab have sent so far, each once for
// every host that sent or forwarded it through its eth0.
func (l *Lab) Packets() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := l.gone
	for _, p := range l.pods {
		total += p.packets()
	}
	for _, n := range l.nodes {
		total += n.packets()
	}
	if l.Client != nil {
		total += l.Client.packets()
	}
	return total
}

// Close removes the lab: ends the commands that run in it, closes its servers and
// lets go of its namespaces. Calling it again does nothing.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	pods := l.pods
	l.pods = nil
	commands := slices.Collect(maps.Keys(l.commands))
	l.mu.Unlock()

	for _, c := range commands {
		c.end()
	}
	for _, p := range pods {
		p.shut()
	}
	for _, n := range l.nodes {
		n.close()
	}
	if l.Client != nil {
		l.Client.close()
	}
	l.gateway.close()
	l.fabric.close()
	l.home.Close()
	if l.dir == "" {
		return nil
	}
	defer l.held.Close()
	if err := os.RemoveAll(l.dir); err != nil {
		return fmt.Errorf("lab: remove working directory: %w", err)
	}
	return nil
}
