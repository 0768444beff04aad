package iptables

import (
	"context"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/kernel/iptables"
	"portolan/service"
)

// forVariants runs f for every variant and family in a fresh namespace.
func forVariants(t *testing.T, f func(t *testing.T, tool *iptables.Tool)) {
	for _, v := range []iptables.Variant{iptables.Legacy, iptables.NFT} {
		for _, family := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
			name := string(v) + map[iptables.Family]string{4: "/ipv4", 6: "/ipv6"}[family]
			t.Run(name, func(t *testing.T) {
				tool := iptables.NewTool(family, v)
				if _, err := exec.LookPath(tool.RestoreProgram); err != nil {
					t.Skipf("%s is not installed", tool.RestoreProgram)
				}
				tool.Env = []string{"XTABLES_LOCKFILE=" + filepath.Join(t.TempDir(), "lock")}
				netnstest.Do(t, func() { f(t, tool) })
			})
		}
	}
}

// forLayouts runs f for every variant, family and layout.
func forLayouts(t *testing.T, f func(t *testing.T, tool *iptables.Tool, b *Backend)) {
	for name, l := range map[string]Layout{"standard": Standard, "compact": Compact} {
		t.Run(name, func(t *testing.T) {
			forVariants(t, func(t *testing.T, tool *iptables.Tool) {
				o := backendFor(tool).options
				o.Layout = l
				f(t, tool, New(o))
			})
		})
	}
}

// writeEveryShape has a Backend write the Services of everyShape.
func writeEveryShape(t *testing.T, b *Backend) *dataplane.Sync {
	t.Helper()
	node, services := everyShape(b.options.Family)
	s := dataplane.NewSync(b)
	fill(t, s, b, node, services)
	_, err := s.Apply(t.Context())
	must(t, err)
	return s
}

func backendFor(tool *iptables.Tool) *Backend {
	return New(Options{Family: service.Family(tool.Family), MasqueradeBit: 14, RandomFully: true, Tool: tool})
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// save returns all tables as text without comments and counters of chains.
func save(t *testing.T, tool *iptables.Tool) string {
	t.Helper()
	var b strings.Builder
	for _, table := range tables {
		for line, err := range tool.Save(context.Background(), table) {
			if err != nil {
				t.Error(err)
				runtime.Goexit()
			}
			if strings.HasPrefix(line, ":") {
				line, _, _ = strings.Cut(line, " [")
			}
			if !strings.HasPrefix(line, "#") {
				b.WriteString(line + "\n")
			}
		}
	}
	return b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
		runtime.Goexit() // not FailNow, which wants the test's own goroutine
	}
}

// Many new chains go to the nft variant in batches; the outcome is the same.
func TestRoundTripInBatches(t *testing.T) {
	forLayouts(t, func(t *testing.T, tool *iptables.Tool, b *Backend) {
		if b.options.Family == service.IPv6 {
			return
		}
		s := dataplane.NewSync(b)
		services := make([]*service.Service, 60+250*int(b.options.Layout))
		for i := range services {
			services[i] = benchService(i, 10)
		}
		benchFill(t, s, b, services)
		r, err := s.Apply(t.Context())
		must(t, err)
		if r.Containers < 3*nftBatch/2 || r.Writes != 1 {
			t.Errorf("first write: %+v", r)
		}
		if r, err = s.Reconcile(t.Context()); err != nil || r.Writes != 0 {
			t.Errorf("second write: %+v %v", r, err)
		}
	})
}

func fill(t *testing.T, s *dataplane.Sync, b *Backend, node service.Node, services []*service.Service) {
	t.Helper()
	s.Set(dataplane.Owner{}, b.Base(node))
	for _, svc := range services {
		objects, err := b.Render(node, svc)
		must(t, err)
		s.Set(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, objects)
	}
}

// What was written is recognised: whatever the form of the rule, an observation
// after the write finds nothing to write.
func TestInvariant5RestartWritesNothing(t *testing.T) {
	forLayouts(t, func(t *testing.T, tool *iptables.Tool, b *Backend) {
		node, services := everyShape(b.options.Family)
		s := dataplane.NewSync(b)
		for name, n := range nodesOf(node) {
			fill(t, s, b, n, services)
			r, err := s.Apply(t.Context())
			must(t, err)
			if r.Writes == 0 || len(r.Rejected) > 0 {
				t.Errorf("%s: first write: %+v", name, r)
			}
			again := dataplane.NewSync(b)
			fill(t, again, b, n, services)
			diff, err := again.Diff(t.Context())
			must(t, err)
			if !diff.Empty() {
				t.Errorf("%s: a restart would write\n%s", name, diff)
			}
			r, err = s.Reconcile(t.Context())
			must(t, err)
			if r.Writes != 0 {
				t.Errorf("%s: second write: %+v", name, r)
			}
		}
	})
}

const foreignFilter = `*filter
:DOCKER-USER - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-NWPLCY-ABC - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -m mark --mark 0x77 -j ACCEPT
-A FORWARD -j DOCKER-USER
-A FORWARD -j KUBE-NWPLCY-ABC
-A OUTPUT -j KUBE-FIREWALL
-A DOCKER-USER -j RETURN
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
COMMIT
*nat
:MY-SNAT - [0:0]
:KUBE-MARK-DROP - [0:0]
-A POSTROUTING -j MY-SNAT
-A MY-SNAT -m mark --mark 0x77 -j MASQUERADE
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000
COMMIT
`

// foreignLines are the lines of a save that are not ours.
func foreignLines(text string) []string {
	var out []string
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"):
			chain, _, _ := strings.Cut(line[1:], " ")
			if ownChain(table + "/" + chain) {
				continue
			}
		case strings.HasPrefix(line, "-A "):
			chain, _, _ := strings.Cut(line[3:], " ")
			if ownChain(table+"/"+chain) || ownChain(table+"/"+iptables.TargetOf(line)) {
				continue
			}
		}
		out = append(out, line)
	}
	return out
}

// What is not ours and its order survive start, changes, repair and cleanup;
// cleanup leaves nothing of ours and works twice.
func TestInvariant6ForeignRulesSurviveAndCleanupLeavesNothing(t *testing.T) {
	forLayouts(t, func(t *testing.T, tool *iptables.Tool, b *Backend) {
		must(t, tool.Restore(t.Context(), []byte(foreignFilter)))
		before := foreignLines(save(t, tool))
		node, services := everyShape(b.options.Family)
		node.NodePorts.Localhost = false // else the localnet rule comes to stay
		s := dataplane.NewSync(b)
		fill(t, s, b, node, services)
		_, err := s.Apply(t.Context())
		must(t, err)
		for _, svc := range services[2:] {
			s.Remove(svc.Name.String())
		}
		_, err = s.Apply(t.Context())
		must(t, err)
		if got := foreignLines(save(t, tool)); !slices.Equal(got, before) {
			t.Errorf("foreign lines\n%s\nbecame\n%s", strings.Join(before, "\n"), strings.Join(got, "\n"))
		}
		for chain, last := range map[string]string{"INPUT": "KUBE-EXTERNAL-SERVICES", "FORWARD": "KUBE-EXTERNAL-SERVICES", "POSTROUTING": "KUBE-POSTROUTING"} {
			_, ours, _ := strings.Cut(save(t, tool), "-A "+chain+" ")
			if at, foreign := strings.Index(ours, last), regexp.MustCompile("-j (ACCEPT|DOCKER-USER|MY-SNAT)").FindStringIndex(ours); at < 0 || foreign == nil || at > foreign[0] {
				t.Errorf("our jumps do not come first in %s", chain)
			}
		}
		dry, err := b.Cleanup(t.Context(), true)
		must(t, err)
		during := save(t, tool)
		if removed, err := b.Cleanup(t.Context(), false); err != nil || !slices.Equal(removed, dry) || len(removed) < 30 {
			t.Errorf("cleanup removed %d (%v), its dry run said %d", len(removed), err, len(dry))
		}
		after := save(t, tool)
		if got := foreignLines(after); !slices.Equal(got, before) || during == after {
			t.Errorf("after cleanup:\n%s\nwant\n%s", after, strings.Join(before, "\n"))
		}
		if strings.Contains(after, "PROXY") || strings.Contains(after, "KUBE-S") || strings.Contains(after, "KUBE-MARK-MASQ") {
			t.Errorf("cleanup left\n%s", after)
		}
		if removed, err := b.Cleanup(t.Context(), false); err != nil || len(removed) != 0 {
			t.Errorf("second cleanup: %v %v", removed, err)
		}
	})
}

// A probe that was killed in the middle leaves its chain; the next full look
// takes it away, and so does cleanup.
func TestProbeThatWasKilledLeavesNothing(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *iptables.Tool) {
		kill := func() {
			must(t, tool.Restore(t.Context(), []byte("*filter\n:"+iptables.ProbeChain+" - [0:0]\n-A "+iptables.ProbeChain+" -p tcp -j RETURN\nCOMMIT\n")))
		}
		b := backendFor(tool)
		kill()
		removed, err := b.Cleanup(t.Context(), false)
		if must(t, err); !slices.Equal(removed, []string{"filter: -X " + iptables.ProbeChain}) {
			t.Errorf("cleanup removed %q", removed)
		}
		kill()
		s := dataplane.NewSync(b)
		fill(t, s, b, service.Node{}, nil)
		_, err = s.Apply(t.Context())
		if must(t, err); strings.Contains(save(t, tool), "PROBE") {
			t.Error("the chain survives a start")
		}
	})
}

func TestCleanupKeepsAChainThatOthersUse(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *iptables.Tool) {
		must(t, tool.Restore(t.Context(), []byte("*nat\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-SERVICES - [0:0]\n:CNI-HOSTPORT - [0:0]\n"+
			"-A KUBE-MARK-MASQ -j RETURN\n-A CNI-HOSTPORT -p tcp -j KUBE-MARK-MASQ\n-A OUTPUT -p udp -j KUBE-SERVICES\nCOMMIT\n")))
		removed, err := backendFor(tool).Cleanup(t.Context(), false)
		if err == nil || !strings.Contains(err.Error(), "-A CNI-HOSTPORT -p tcp -j KUBE-MARK-MASQ") {
			t.Errorf("error %v", err)
		}
		if want := []string{"nat: -D OUTPUT -p udp -j KUBE-SERVICES", "nat: -X KUBE-SERVICES"}; !slices.Equal(removed, want) {
			t.Errorf("removed %v", removed)
		}
	})
}

// The kernel refuses one Service's rule; all others work, the report names the
// Service, and when it is mended it is programmed.
func TestKernelRefusesOneService(t *testing.T) {
	forLayouts(t, func(t *testing.T, tool *iptables.Tool, b *Backend) {
		node, services := everyShape(b.options.Family)
		s := dataplane.NewSync(b)
		fill(t, s, b, node, services)
		for _, bad := range []string{
			"-p tcp -j REJECT",                     // not in nat: the kernel
			"-m nfacct --nfacct-name none -j DROP", // the kernel or a missing extension
			"-p tcp --bogus",                       // the program
			"-j KUBE-NOWHERE",                      // the program, which names a wrong line
		} {
			s.Set(dataplane.Owner{Name: "default/bad"}, []dataplane.Object{
				{Key: dataplane.Key{Container: "nat/KUBE-SVC-BAD"}, Body: bad},
				{Key: dataplane.Key{Container: natServices, Name: "bad"}, Body: "-p 99 -j KUBE-SVC-BAD"},
			})
			r, err := s.Apply(t.Context())
			must(t, err)
			if len(r.Rejected) != 1 || r.Rejected[0].Owner != "default/bad" || r.Rejected[0].Err == nil {
				t.Errorf("%s: %+v", bad, r)
			}
			if text := save(t, tool); !strings.Contains(text, "default/cluster:http") || strings.Contains(text, "BAD") {
				t.Errorf("%s: kernel holds\n%s", bad, text)
			}
		}
		s.Remove("default/bad")
		r, err := s.Reconcile(t.Context())
		must(t, err)
		if len(r.Rejected) != 0 || r.Writes != 0 {
			t.Errorf("after removal: %+v", r)
		}
	})
}

// Others delete and change rules of ours; Changes tells, and Reconcile repairs
// just that.
func TestChangesByOthersAreSeenAndRepaired(t *testing.T) {
	forLayouts(t, func(t *testing.T, tool *iptables.Tool, b *Backend) {
		s := writeEveryShape(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		signal := b.Changes(ctx)
		whole := save(t, tool)
		for _, meddling := range []string{
			"*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n",
			"*nat\n-D PREROUTING 1\nCOMMIT\n",
			"*filter\n-F KUBE-FORWARD\nCOMMIT\n",
			"*mangle\n-F KUBE-PROXY-CANARY\n-X KUBE-PROXY-CANARY\nCOMMIT\n",
			"*filter\n-I KUBE-SERVICES -p tcp -j ACCEPT\nCOMMIT\n",
		} {
			must(t, tool.Restore(t.Context(), []byte(meddling)))
			<-signal
			_, err := s.Reconcile(t.Context())
			must(t, err)
			if got := save(t, tool); got != whole {
				t.Errorf("after %q and repair:\n%s\nwant\n%s", meddling, got, whole)
			}
		}
	})
}
