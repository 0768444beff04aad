// Package backendtest is what the tests of the backends share: Services to program, in
// both families, and the steps of a test, from what is wanted to the kernel and back.
//
// services.go has the addresses and the Services; steps.go programs them.
package backendtest

import (
	"fmt"
	"net/netip"
	"time"

	"portolan/service"
)

// A Family has addresses of the same meaning in either IP family. Cluster, External,
// Pod, Outer and Node are formats for At.
type Family struct {
	service.Family
	Cluster  string // cluster IPs
	External string // addresses outside of the cluster
	Pod      string // pods of this node
	Outer    string // pods of another node
	Node     string // nodes
	PodCIDR  string // the pods of all nodes
	Clients  string // a network outside, for source ranges
}

// Families are IPv4 and IPv6.
var Families = []Family{
	{service.IPv4, "10.96.0.%d", "203.0.113.%d", "10.244.1.%d", "10.244.2.%d", "192.0.2.%d", "10.244.0.0/16", "198.51.100.0/24"},
	{service.IPv6, "fd00:96::%d", "2001:db8:113::%d", "fd00:244:1::%d", "fd00:244:2::%d", "2001:db8::%d", "fd00:244::/32", "2001:db8:2::/64"},
}

// At is address number n of a format of Family.
func At(format string, n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, n)) }

// Endpoints are n ready ones, of which the first, the third and so on are on node1,
// and the others on node2.
func (f Family) Endpoints(n int, port uint16) (out []service.Endpoint) {
	for i := range n {
		format, node := f.Pod, "node1"
		if i%2 == 1 {
			format, node = f.Outer, "node2"
		}
		out = append(out, service.Endpoint{Addr: netip.AddrPortFrom(At(format, i+1), port), Ready: true, Serving: true, Node: node})
	}
	return out
}

// Web is the Service default/web-n with cluster IP number n, and one TCP port, 80, with
// that many endpoints.
func (f Family) Web(n, endpoints int) *service.Service {
	return &service.Service{
		Name:       service.Name{Namespace: "default", Name: fmt.Sprintf("web-%d", n)},
		Created:    time.Unix(int64(n), 0),
		ClusterIPs: []netip.Addr{At(f.Cluster, n)},
		Ports:      []service.Port{{Name: "http", Protocol: service.TCP, Port: 80, Endpoints: f.Endpoints(endpoints, 8080)}},
	}
}

// Webs are web-1, web-2 and so on with 5 endpoints each, one for each change, and
// changed by it.
func (f Family) Webs(changes ...func(*service.Service)) []*service.Service {
	out := make([]*service.Service, len(changes))
	for i, change := range changes {
		out[i] = f.Web(i+1, 5)
		change(out[i])
	}
	return out
}
