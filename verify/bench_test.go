package verify_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"portolan/backend/iptables"
	"portolan/backend/nftables"
	"portolan/netfilter/detect"
	"portolan/service"
	"portolan/trace"
	"portolan/verify"
)

// manyServices are so many Services of ten endpoints each, every hundredth endpoint on
// this node; one in five has a NodePort.
func manyServices(n int) *service.Snapshot {
	var list []*service.Service
	for i := range n {
		s := &service.Service{
			Name:       service.Name{Namespace: fmt.Sprintf("ns%d", i%50), Name: fmt.Sprintf("svc%d", i)},
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})},
		}
		p := service.Port{Name: "http", Protocol: service.TCP, Port: 80}
		if i%5 == 0 {
			p.NodePort = uint16(30000 + i/5)
		}
		for e := range 10 {
			k := i*10 + e
			addr, node := netip.AddrFrom4([4]byte{10, 130 + byte(k>>16), byte(k >> 8), byte(k)}), "node-2"
			if k%100 == 0 {
				addr, node = netip.AddrFrom4([4]byte{10, 128, byte(k / 100 >> 8), byte(k / 100)}), "node-1"
			}
			p.Endpoints = append(p.Endpoints, service.Endpoint{Addr: netip.AddrPortFrom(addr, 8080), Ready: true, Serving: true, Node: node})
		}
		s.Ports = []service.Port{p}
		list = append(list, s)
	}
	node := service.Node{Name: "node-1", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}, Detector: service.PodDetector{CIDRs: prefixes("10.128.0.0/9")}}
	return (&service.Snapshot{}).With(node, list, nil)
}

const benchHost = `interfaces:
- {name: lo, addresses: [127.0.0.1/8]}
- {name: eth0, addresses: [192.0.2.10/24]}
- {name: cni0, kind: bridge, addresses: [10.128.255.254/16]}
routes:
- {to: default, via: 192.0.2.1, dev: eth0}
- {to: 10.128.0.0/9, via: 192.0.2.11, dev: eth0}
sysctls: {net.ipv4.ip_forward: 1, net.ipv4.conf.all.route_localnet: 0, net.bridge.bridge-nf-call-iptables: 1, net.ipv4.conf.all.rp_filter: 0}
`

// BenchmarkVerify reads the dump of a node with 10,000 Services and checks it: every
// client at every frontend.
func BenchmarkVerify(b *testing.B) {
	snapshot := manyServices(10000)
	for _, mode := range []string{"iptables", "nftables", "kube-proxy-nftables"} {
		var text string
		switch mode {
		case "iptables": // kube-proxy's too
			back := iptables.New(iptables.Options{Family: service.IPv4, MasqueradeBit: 14, RandomFully: true})
			text = iptables.PlanText(planOf(b, back, snapshot))
		case "nftables":
			back := nftables.New(nftables.Options{Family: service.IPv4, MasqueradeBit: 14})
			text = back.PlanText(planOf(b, back, snapshot))
		default:
			text = peerTable(snapshot)
		}
		b.Run(mode, func(b *testing.B) {
			for b.Loop() {
				h, err := detect.Host(detect.Options{}, detect.Text{Name: "rules", Text: text}, detect.Text{Name: "host", Text: benchHost})
				if err != nil {
					b.Fatal(err)
				}
				r := verify.Verify(verify.Input{Tracer: trace.New(h, trace.Options{Reply: true}), Services: snapshot})
				for _, f := range r.Findings {
					b.Fatalf("%s %s %s", f.Code, f.Object, f.Actual)
				}
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(r.Flows), "packets")
				b.ReportMetric(float64(m.Sys)/(1<<20), "MiB-from-OS")
			}
		})
	}
}
