package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/service"
)

// A host on which kube-proxy ran is taken over: its Service chains are ours as
// they are, what it did not write is added, and what is not ours stays.
func TestAdoptionOfKubeProxysRules(t *testing.T) {
	text, err := os.ReadFile("../../testdata/dumps/004-kubeadm-v1.34.2-flannel-iptables-mode.nat.restore.txt")
	if err != nil {
		t.Fatal(err)
	}
	node := service.Node{Name: "n", Detector: service.PodDetector{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}},
		NodePorts: service.NodePortAddresses{Localhost: true}}
	services := []*service.Service{
		clusterService("default", "kubernetes", "10.96.0.1", tcpPort("https", 443, 0, "172.22.7.89:6443")),
		clusterService("default", "nginx", "10.106.224.38", tcpPort("", 80, 31532, "10.244.0.4:80")),
		dns("10.244.0.2", "10.244.0.3"),
	}
	forVariants(t, func(t *testing.T, tool *iptables.Tool) {
		if tool.Family == iptables.IPv6 {
			return // the dump is of IPv4
		}
		counters, err := EnsureCounters(t.Context(), tool)
		dump := string(text)
		if err != nil { // then neither writes the rule that counts
			dump = strings.Join(slices.DeleteFunc(strings.SplitAfter(dump, "\n"), func(l string) bool { return strings.Contains(l, "nfacct") }), "")
		}
		must(t, tool.Restore(t.Context(), []byte(dump)))
		before := foreignLines(save(t, tool))
		b := New(Options{Family: service.IPv4, MasqueradeBit: 14, RandomFully: true, Nfacct: counters, Tool: tool})
		s := dataplane.NewSync(b)
		fill(t, s, b, node, services)
		plan, err := s.Diff(t.Context())
		must(t, err)
		for _, c := range plan.Changes {
			inOrder := c.Container == natServices && len(c.Created)+len(c.Deleted)+len(c.Replaced) == 0
			if strings.HasPrefix(c.Container, "nat/") && !inOrder {
				t.Errorf("would write %s: +%v -%v", c.Container, c.Created, c.Deleted)
			}
		}
		_, err = s.Apply(t.Context())
		must(t, err)
		after := foreignLines(save(t, tool))
		for _, line := range before { // filter was empty before, and KUBE-FIREWALL is new
			if !slices.Contains(after, line) {
				t.Errorf("foreign line is gone: %s", line)
			}
		}
	})
}

// kubelet made its chain after we looked: its rules stay and ours come.
func TestKubeletsChainIsNotEmptied(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *iptables.Tool) {
		b := backendFor(tool)
		node, services := everyShape(b.options.Family)
		s := dataplane.NewSync(b)
		fill(t, s, b, node, services)
		plan, err := s.Diff(t.Context())
		must(t, err)
		must(t, tool.Restore(t.Context(), []byte(foreignFilter)))
		if err := b.Apply(t.Context(), plan); err == nil {
			t.Error("a plan that knows nothing of the chain was written over it")
		}
		_, err = s.Apply(t.Context())
		must(t, err)
		text := save(t, tool)
		if !strings.Contains(text, "-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP") || strings.Count(text, "-A INPUT -j KUBE-FIREWALL") != 1 {
			t.Errorf("kernel holds\n%s", text)
		}
		if tool.Family == iptables.IPv4 && !strings.Contains(text, "block incoming localnet connections") {
			t.Errorf("localnet rule is not there\n%s", text)
		}
		// Kubelet's it is too, so it stays when we need it no more.
		node.NodePorts.Localhost = false
		fill(t, s, b, node, services)
		_, err = s.Apply(t.Context())
		must(t, err)
		r, err := s.Reconcile(t.Context())
		must(t, err)
		if kept := strings.Contains(save(t, tool), "block incoming localnet"); kept != (tool.Family == iptables.IPv4) || r.Writes != 0 {
			t.Errorf("localnet rule kept: %v, second write %+v", kept, r)
		}
	})
}

func drawService(t *rapid.T, name string) *service.Service {
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	p := tcpPort(pick("port", "", "http"), uint16(rapid.IntRange(80, 81).Draw(t, "number")), 0)
	p.NodePort = rapid.SampledFrom([]uint16{0, 30080, 30081}).Draw(t, "nodePort")
	for i := range rapid.IntRange(0, 3).Draw(t, "endpoints") {
		e := ready(fmt.Sprintf("10.244.0.%d:8080", i+1))[0]
		e.Node, e.Ready = pick("node", "n1", "n2"), rapid.Bool().Draw(t, "ready")
		p.Endpoints = append(p.Endpoints, e)
	}
	s := clusterService("default", name, pick("ip", "10.96.0.1", "10.96.0.2", "10.96.0.3"), p)
	s.Created = time.Date(2026, 1, 1, rapid.IntRange(0, 2).Draw(t, "age"), 0, 0, 0, time.UTC)
	for _, list := range []*[]netip.Addr{&s.ExternalIPs, &s.LoadBalancerIPs} {
		for range rapid.IntRange(0, 2).Draw(t, "addresses") {
			*list = append(*list, addr(pick("address", "10.96.0.1", "192.0.2.1", "192.0.2.2")))
		}
	}
	if rapid.Bool().Draw(t, "ranges") {
		s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("0.0.0.0/0")}
	}
	s.ExternalPolicy = service.Policy(rapid.IntRange(0, 1).Draw(t, "eTP"))
	s.InternalPolicy = service.Policy(rapid.IntRange(0, 1).Draw(t, "iTP"))
	if rapid.Bool().Draw(t, "sticky") {
		s.AffinityTimeout = time.Hour
	}
	return s
}

// Whatever happened on the way, with addresses contended for and exchanged and
// writes that failed, the kernel ends up as from a fresh start; every jump in it
// leads to a chain that is there.
func TestAnyHistoryEndsAsAFreshStart(t *testing.T) {
	node := service.Node{Name: "n1", IPs: []netip.Addr{addr("203.0.113.9")}, NodePorts: service.NodePortAddresses{Localhost: true},
		Detector: service.PodDetector{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}}
	b := New(Options{Family: service.IPv4, MasqueradeBit: 14, Nfacct: Counters{LocalhostAccepted: true}})
	set := func(t *rapid.T, s *dataplane.Sync, svc *service.Service) {
		objects, err := b.Render(node, svc)
		if err != nil {
			t.Fatal(err)
		}
		s.Set(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, objects)
	}
	rapid.Check(t, func(t *rapid.T) {
		fake := &dataplane.Fake{}
		s := dataplane.NewSync(fake)
		s.Set(dataplane.Owner{}, b.Base(node))
		now := map[string]*service.Service{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				delete(now, name)
				s.Remove("default/" + name)
			case 1:
				fake.Refuse = func(dataplane.Plan) error { return os.ErrDeadlineExceeded }
				_, _ = s.Apply(t.Context()) // fails when there is something to write
				fake.Refuse = nil
			case 2:
				if _, err := s.Apply(t.Context()); err != nil {
					t.Fatal(err)
				}
			default:
				now[name] = drawService(t, name)
				set(t, s, now[name])
			}
		}
		if _, err := s.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		fresh := &dataplane.Fake{}
		s2 := dataplane.NewSync(fresh)
		s2.Set(dataplane.Owner{}, b.Base(node))
		for _, svc := range now {
			set(t, s2, svc)
		}
		if _, err := s2.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := plain(fake), plain(fresh); !reflect.DeepEqual(got, want) {
			t.Fatalf("kernel holds %v\nafter a fresh start %v", got, want)
		}
		checkTargets(t, fake.Content())
		if r, err := s.Reconcile(t.Context()); err != nil || r.Writes != 0 {
			t.Fatalf("a second sync writes: %+v %v", r, err)
		}
	})
}

// plain leaves out the order in shared chains, which is that of insertion.
func plain(f *dataplane.Fake) map[string][]string {
	out := f.Content()
	for container, lines := range out {
		if !ownChain(container) {
			slices.Sort(lines)
		}
	}
	return out
}

func checkTargets(t *rapid.T, content map[string][]string) {
	for container, lines := range content {
		for _, l := range lines {
			if target := iptables.TargetOf(" " + l); strings.HasPrefix(target, "KUBE-") {
				if _, there := content[tableOf(container)+"/"+target]; !there {
					t.Fatalf("%s leads to %s, which is not there: %s", container, target, l)
				}
			}
		}
	}
}

// A table with a rule that iptables cannot show is not an empty table: nothing
// is written over it, and the error says why.
func TestTableThatCannotBeReadIsNotWritten(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	forVariants(t, func(t *testing.T, tool *iptables.Tool) {
		if tool.Variant != iptables.NFT {
			return
		}
		s := writeEveryShape(t, backendFor(tool))
		rule := "ip nat PREROUTING ip daddr 10.0.0.1 dnat to numgen inc mod 2 map { 0 : 10.0.0.2, 1 : 10.0.0.3 }"
		if tool.Family == iptables.IPv6 {
			rule = "ip6 nat PREROUTING ip6 daddr fd00::1 dnat to numgen inc mod 2 map { 0 : fd00::2, 1 : fd00::3 }"
		}
		if out, err := exec.Command("nft", "add rule "+rule).CombinedOutput(); err != nil {
			t.Errorf("nft: %v: %s", err, out)
			return
		}
		if r, err := s.Reconcile(t.Context()); !errors.Is(err, iptables.ErrNotShown) || r.Writes != 0 {
			t.Errorf("%+v %v", r, err)
		}
	})
}
