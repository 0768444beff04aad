package linux

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/kernel/nft"
	"portolan/podnet"
)

func topology(t *testing.T, f podnet.Family) podnet.Topology {
	t.Helper()
	w := newCluster(t, vxlanConf, 2)
	top, _, err := podnet.Given{Config: w.config, Annotations: w.names, Self: w.self, Own: w.own, Nodes: w.nodes}.Resolve(f)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// rulesKernel is one way to write the rules, with the objects in its form and
// what empties the tables behind its back.
type rulesKernel struct {
	kernel  dataplane.Kernel
	objects []dataplane.Object
	program string
	args    []string
}

func rulesKernels(t *testing.T, f podnet.Family) map[string]rulesKernel {
	t.Helper()
	top := topology(t, f)
	masquerade, forward := podnet.MasqueradeRules(top), podnet.ForwardRules(top)
	out := map[string]rulesKernel{}
	for _, v := range []iptables.Variant{iptables.Legacy, iptables.NFT} {
		tool := iptables.NewTool(map[podnet.Family]iptables.Family{podnet.IPv4: iptables.IPv4, podnet.IPv6: iptables.IPv6}[f], v)
		tool.Env = []string{"XTABLES_LOCKFILE=" + filepath.Join(t.TempDir(), "lock")}
		if _, err := exec.LookPath(tool.RestoreProgram); err != nil {
			t.Skip(err)
		}
		watch, err := iptables.NewWatch(tool)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { watch.Close() })
		out["iptables-"+string(v)] = rulesKernel{NewIPTables(tool, watch), podnet.IPTables(masquerade, forward, true), strings.TrimSuffix(tool.RestoreProgram, "-restore"), []string{"-t", "nat", "-F", podnet.MasqueradeChain}}
	}
	conn, err := nft.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	out["nftables"] = rulesKernel{NewNFTables(conn, f, true), NFTablesObjects(masquerade, forward), "nft", []string{"delete", "table", map[podnet.Family]string{podnet.IPv4: "ip flannel-ipv4", podnet.IPv6: "ip6 flannel-ipv6"}[f]}}
	return out
}

// What is written is read back as it was; what others empty is written again;
// without owners all goes.
func TestRules(t *testing.T) {
	for _, f := range []podnet.Family{podnet.IPv4, podnet.IPv6} {
		inNamespace(t)
		for name, k := range rulesKernels(t, f) {
			s := dataplane.NewSync(k.kernel)
			s.Set(dataplane.Owner{}, k.objects)
			if r := sync(t, s); r.Created != 10 && r.Created != 8 {
				t.Errorf("%s %s: %+v", name, f, r)
			}
			if p, err := s.Diff(t.Context()); err != nil || !p.Empty() {
				t.Errorf("%s %s: what is read is not what was written: %v\n%s", name, f, err, p)
			}
			args := strings.Fields(strings.Join(k.args, " "))
			cmd := exec.Command(k.program, args...)
			cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"))
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s %s: %v %s", name, f, err, text)
			}
			if r := sync(t, s); r.Created < 6 {
				t.Errorf("%s %s: after others emptied it: %+v", name, f, r)
			}
			s.Remove("")
			sync(t, s)
			if p, err := s.Diff(t.Context()); err != nil || !p.Empty() {
				t.Errorf("%s %s: left: %v\n%s", name, f, err, p)
			}
		}
	}
}

// A rule, to expressions and back, is the same rule.
func TestRuleExpressions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom([]nft.Family{nft.IPv4, nft.IPv6}).Draw(t, "family")
		prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
			if rapid.Bool().Draw(t, "none") {
				return netip.Prefix{}
			}
			size := int(addressAt[f].size)
			addr, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "addr"))
			return netip.PrefixFrom(addr, rapid.IntRange(1, size*8).Draw(t, "bits")).Masked()
		})
		r := podnet.Rule{Src: prefix.Draw(t, "src"), Dst: prefix.Draw(t, "dst"), Mark: rapid.SampledFrom([]uint32{0, 0x4000, 1}).Draw(t, "mark"), Verdict: rapid.SampledFrom([]podnet.Verdict{podnet.Return, podnet.Accept, podnet.Masquerade}).Draw(t, "verdict")}
		r.NotSrc = r.Src.IsValid() && rapid.Bool().Draw(t, "not source")
		r.NotDst = r.Dst.IsValid() && rapid.Bool().Draw(t, "not destination")
		k := &NFTables{table: nft.Table{Family: f}}
		if got := k.read(nft.Rule{Exprs: k.exprs(r)}); got != r.String() {
			t.Fatalf("%s came back as %s", r, got)
		}
		back, err := podnet.ParseRule(r.String())
		if err != nil || back != r {
			t.Fatalf("%s was read as %s: %v", r, back, err)
		}
	})
}
