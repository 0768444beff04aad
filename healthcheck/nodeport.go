package healthcheck

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"portolan/service"
)

// NodePorts answers load balancers on the healthCheckNodePort of Services with
// externalTrafficPolicy Local: 200 while this node has ready endpoints of the
// Service and the proxy is healthy, else 503. The number of endpoints travels
// in the header X-Load-Balancing-Endpoint-Weight.
type NodePorts struct {
	health *Health
	family service.Family

	mu      sync.Mutex
	servers map[service.Name]*nodePortServer
	failed  map[service.Name]error // could not be opened
}

// nodePortServer answers for one Service.
type nodePortServer struct {
	name   service.Name
	port   uint16
	addrs  []netip.Addr
	health *Health
	http   []*http.Server

	mu    sync.Mutex
	local int
}

// NewNodePorts returns the health-check node ports of one family, none open.
func NewNodePorts(health *Health, f service.Family) *NodePorts {
	return &NodePorts{health: health, family: f, servers: map[service.Name]*nodePortServer{}, failed: map[service.Name]error{}}
}

// Update opens, closes and answers as the Snapshot asks; prev is the Snapshot
// of the last Update, or nil. It returns the ports that cannot be opened, by
// Service; they are tried again by the next Update.
func (n *NodePorts) Update(ctx context.Context, s, prev *service.Snapshot) map[service.Name]error {
	n.mu.Lock()
	defer n.mu.Unlock()
	again := map[service.Name]bool{}
	for name := range n.failed {
		again[name] = true
	}
	failed := map[service.Name]error{}
	everything := prev == nil || !s.Node.Equal(prev.Node)
	for c := range s.Changes(prev) {
		if c.New == nil {
			n.close(c.Old.Name)
			delete(again, c.Old.Name)
		} else if !everything {
			again[c.New.Name] = true
		}
	}
	if everything {
		for svc := range s.All() {
			again[svc.Name] = true
		}
	}
	for name := range again {
		if err := n.update(ctx, s.Node, s.Service(name)); err != nil {
			failed[name] = err
		}
	}
	n.failed = failed
	return failed
}

// Close closes all ports.
func (n *NodePorts) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.servers {
		n.close(name)
	}
}

func (n *NodePorts) close(name service.Name) {
	if s := n.servers[name]; s != nil {
		for _, h := range s.http {
			_ = h.Close() // nothing is left to do about it
		}
		delete(n.servers, name)
	}
}

// update has the node answer for a Service on its health-check node port. A server whose
// port or addresses stay the same only learns how many endpoints are here; else it is
// closed and another one is opened.
func (n *NodePorts) update(ctx context.Context, node service.Node, svc *service.Service) error {
	port := svc.HealthCheckNodePort
	if _, ours := svc.ClusterIP(n.family); !ours {
		port = 0
	}
	var addrs []netip.Addr // none means all
	if !node.NodePorts.All(n.family) {
		addrs = node.NodePorts.Selected(n.family)
	}
	current := n.servers[svc.Name]
	if current != nil && (current.port != port || !slices.Equal(current.addrs, addrs)) {
		n.close(svc.Name)
		current = nil
	}
	if port == 0 {
		return nil
	}
	local := service.LocalReady(node, svc, n.family)
	if current != nil {
		current.setLocal(local)
		return nil
	}
	s := &nodePortServer{name: svc.Name, port: port, addrs: addrs, health: n.health, local: local}
	if err := s.listen(ctx, n.family); err != nil {
		return fmt.Errorf("healthcheck: Service %s: healthCheckNodePort %d: %w", svc.Name, svc.HealthCheckNodePort, err)
	}
	n.servers[svc.Name] = s
	return nil
}

// listen answers on all of the addresses, or on none of them when one cannot be had.
func (s *nodePortServer) listen(ctx context.Context, f service.Family) error {
	network, any := "tcp4", netip.IPv4Unspecified()
	if f == service.IPv6 {
		network, any = "tcp6", netip.IPv6Unspecified()
	}
	addrs := s.addrs
	if len(addrs) == 0 {
		addrs = []netip.Addr{any}
	}
	var config net.ListenConfig
	var listeners []net.Listener
	for _, a := range addrs {
		l, err := config.Listen(ctx, network, net.JoinHostPort(a.String(), strconv.Itoa(int(s.port))))
		if err != nil {
			for _, open := range listeners {
				_ = open.Close() // all or nothing
			}
			return err
		}
		listeners = append(listeners, l)
	}
	for _, l := range listeners {
		server := &http.Server{Handler: loud(s), ReadHeaderTimeout: 10 * time.Second}
		s.http = append(s.http, server)
		go server.Serve(l) // ends with Close
	}
	return nil
}

func (s *nodePortServer) setLocal(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.local = n
}

// ServeHTTP answers on every path.
func (s *nodePortServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	local := s.local
	s.mu.Unlock()
	healthy := s.health.Alive()
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(local))
	code := http.StatusServiceUnavailable
	if local > 0 && healthy {
		code = http.StatusOK
	}
	type name struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	writeJSON(w, code, struct {
		Service      name `json:"service"`
		Local        int  `json:"localEndpoints"`
		ProxyHealthy bool `json:"serviceProxyHealthy"`
	}{name{s.name.Namespace, s.name.Name}, local, healthy}, "\t")
}
