package iptables

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/service"
)

// dump is a saved ruleset: bodies in canonical form by container.
type dump map[string][]string

// readDump reads iptables-save or iptables -S text; lines before the first
// table belong to table.
func readDump(t *testing.T, file, table string) dump {
	t.Helper()
	text, err := os.ReadFile("../../testdata/dumps/" + file)
	if err != nil {
		t.Fatal(err)
	}
	d := dump{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "*") {
			table = line[1:]
		}
		rule, ok := strings.CutPrefix(line, "-A ")
		if !ok {
			continue
		}
		chain, rule, _ := strings.Cut(rule, " ")
		body, _ := iptables.Canonical(rule)
		d[table+"/"+chain] = append(d[table+"/"+chain], body)
	}
	return d
}

// todaysComments gives the balancing rules of an older kube-proxy the comment
// of 1.37, which names the endpoint.
func (d dump) todaysComments() {
	for container, lines := range d {
		if !strings.HasPrefix(container, clusterChain) {
			continue
		}
		for i, l := range lines {
			sep := d["nat/"+iptables.TargetOf(" "+l)]
			if len(sep) != 2 || strings.Contains(l, " -> ") {
				continue // the masquerade rule, or today's
			}
			_, address, _ := strings.Cut(sep[1], "--to-destination ")
			comment, rest, _ := strings.Cut(strings.TrimPrefix(l, "-m comment --comment "), " ")
			lines[i] = `-m comment --comment "` + comment + " -> " + address + `" ` + rest
		}
	}
}

func clusterService(ns, name, ip string, ports ...service.Port) *service.Service {
	return &service.Service{Name: service.Name{Namespace: ns, Name: name}, ClusterIPs: []netip.Addr{addr(ip)}, Ports: ports}
}

func ready(addresses ...string) (out []service.Endpoint) {
	for _, a := range addresses {
		out = append(out, service.Endpoint{Addr: netip.MustParseAddrPort(a), Ready: true, Serving: true})
	}
	return out
}

func tcpPort(name string, port, nodePort uint16, endpoints ...string) service.Port {
	return service.Port{Name: name, Protocol: service.TCP, Port: port, NodePort: nodePort, Endpoints: ready(endpoints...)}
}

func dns(a, b string) *service.Service {
	return clusterService("kube-system", "kube-dns", "10.96.0.10",
		service.Port{Name: "dns", Protocol: service.UDP, Port: 53, Endpoints: ready(a+":53", b+":53")},
		tcpPort("dns-tcp", 53, 0, a+":53", b+":53"),
		tcpPort("metrics", 9153, 0, a+":9153", b+":9153"))
}

// From Services to exactly the rules that kube-proxy wrote for them.
func TestGoldenDumps(t *testing.T) {
	for _, c := range []struct {
		file, table string
		counters    Counters
		services    []*service.Service
	}{
		{"001-rules-filter-and-nat.txt", "nat", Counters{}, []*service.Service{
			clusterService("default", "http-svc", "10.107.38.142", tcpPort("", 80, 0, "10.244.1.7:80", "10.244.2.8:80", "10.244.2.9:80")),
			clusterService("default", "http-svc-node-port", "10.108.51.223", tcpPort("", 80, 32054, "10.244.1.7:80")),
		}},
		{"002-kind-v1.23.5-iptables.save.txt", "", Counters{}, []*service.Service{
			clusterService("default", "kubernetes", "10.96.0.1", tcpPort("https", 443, 0, "172.18.0.5:6443")),
			clusterService("default", "traefik", "10.96.237.231", tcpPort("web", 80, 0, "10.244.0.5:8000"), tcpPort("websecure", 443, 0, "10.244.0.5:8443")),
			dns("10.244.0.3", "10.244.0.4"),
		}},
		{"004-kubeadm-v1.34.2-flannel-iptables-mode.nat.S.txt", "nat", Counters{LocalhostAccepted: true}, []*service.Service{
			clusterService("default", "kubernetes", "10.96.0.1", tcpPort("https", 443, 0, "172.22.7.89:6443")),
			clusterService("default", "nginx", "10.106.224.38", tcpPort("", 80, 31532, "10.244.0.4:80")),
			dns("10.244.0.2", "10.244.0.3"),
		}},
	} {
		t.Run(c.file, func(t *testing.T) {
			d := readDump(t, c.file, c.table)
			d.todaysComments()
			compareWithDump(t, rendered(t, c.counters, c.services), d, strings.HasPrefix(c.file, "001"))
			checkJumps(t, d)
		})
	}
}

// compareWithDump wants every chain of ours in the dump to be the same, and no
// other Service chains, unless the dump is an excerpt.
func compareWithDump(t *testing.T, got map[string][]string, d dump, excerpt bool) {
	t.Helper()
	chains := 0
	for container, want := range d {
		if !ownChain(container) {
			continue
		}
		chains++
		have := got[container]
		if container == natServices { // kube-proxy's order is that of a map
			if n := len(have) - 1; n < 0 || have[n] != want[n] {
				t.Errorf("%s does not end with %s", container, want[len(want)-1])
			}
			slices.Sort(have)
			slices.Sort(want)
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s\n%s\nwant\n%s", container, strings.Join(have, "\n"), strings.Join(want, "\n"))
		}
	}
	for container := range got {
		if d[container] == nil && strings.HasPrefix(container, "nat/KUBE-S") && !excerpt {
			t.Errorf("%s is not in the dump", container)
		}
	}
	if chains < 7 {
		t.Errorf("only %d chains compared", chains)
	}
}

func rendered(t *testing.T, counters Counters, services []*service.Service) map[string][]string {
	t.Helper()
	b := New(Options{Family: service.IPv4, MasqueradeBit: 14, RandomFully: true, Nfacct: counters})
	node := service.Node{Name: "n", Detector: service.PodDetector{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}},
		NodePorts: service.NodePortAddresses{Localhost: true}}
	fake := &dataplane.Fake{}
	s := dataplane.NewSync(fake)
	fill(t, s, b, node, services)
	if _, err := s.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	return fake.Content()
}

// checkJumps compares the order of jumps with that of the dump, as far as the
// dump has them: each of ours is inserted before what is there.
func checkJumps(t *testing.T, d dump) {
	t.Helper()
	effective := map[string][]string{}
	for _, j := range jumps {
		effective[j.from] = append([]string{j.body()}, effective[j.from]...)
	}
	// Kubelet inserts its jump whenever it starts, so its place means nothing.
	kubelets := func(s string) bool { return s == "-j KUBE-FIREWALL" }
	for from, ours := range effective {
		seen := slices.DeleteFunc(slices.Clone(d[from]), func(s string) bool { return kubelets(s) || !slices.Contains(ours, s) })
		ours = slices.DeleteFunc(ours, func(s string) bool { return kubelets(s) || !slices.Contains(seen, s) })
		if !slices.Equal(ours, seen) {
			t.Errorf("%s: jumps\n%s\nin the dump\n%s", from, strings.Join(ours, "\n"), strings.Join(seen, "\n"))
		}
	}
}
