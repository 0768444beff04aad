package trace_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
)

const shared = "../testdata/"

func load(t testing.TB, o detect.Options, paths ...string) *netfilter.Host {
	t.Helper()
	texts, err := detect.Read(paths...)
	if err != nil {
		t.Fatal(err)
	}
	h, err := detect.Host(o, texts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// node004 is the node of dumps 004 in iptables mode.
func node004(t testing.TB) *netfilter.Host {
	return load(t, detect.Options{}, shared+"dumps/004-kubeadm-v1.34.2-flannel-iptables-mode.nat.restore.txt", "testdata/node004/filter.save", "testdata/node004/host.yaml")
}

// flow makes a flow: "src[:port] dst[:port] proto [in=IFACE] [local]".
func flow(t testing.TB, s string) trace.Flow {
	t.Helper()
	f := trace.Flow{Proto: netfilter.TCP}
	words := strings.Fields(s)
	f.Src, f.SrcPort = end(t, words[0])
	f.Dst, f.DstPort = end(t, words[1])
	for _, w := range words[2:] {
		switch k, v, _ := strings.Cut(w, "="); k {
		case "in":
			f.In = v
		case "local":
			f.Local = true
		case "output":
			f.Hook = netfilter.Output
		case "mark":
			n, _ := strconv.ParseUint(v, 0, 32)
			f.Mark = uint32(n)
		case "uid", "gid":
			n, _ := strconv.ParseUint(v, 10, 32)
			if k == "uid" {
				f.UID = new(uint32(n))
			} else {
				f.GID = new(uint32(n))
			}
		case "invalid":
			f.Invalid = true
		case "ack":
			f.TCPFlags = netfilter.ACK
		default:
			n, ok := netfilter.ProtoByName(k)
			if !ok {
				t.Fatalf("flow %q: what is %q?", s, w)
			}
			f.Proto = n
		}
	}
	return f
}

func end(t testing.TB, s string) (netip.Addr, uint16) {
	t.Helper()
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr(), ap.Port()
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a, 0
}

// condensed writes an outcome in the form of the kernel's condensed trace.
func condensed(o trace.Outcome) []string {
	var out []string
	table := ""
	hop := -1
	for _, s := range o.Steps {
		if s.Target == "TRACE" {
			continue
		}
		if s.Hop != hop || s.Table != table {
			hop, table = s.Hop, s.Table
			h := o.Hops[hop]
			mark := "0"
			// The kernel prints the mark at the time of the hook.
			if s.Mark != 0 {
				mark = fmt.Sprintf("0x%x", s.Mark)
			}
			out = append(out, fmt.Sprintf("PACKET in=%s out=%s %s -> %s ttl=%d mark=%s", dash(h.In), dash(h.Out), s.Src, netip.AddrPortFrom(s.Dst, s.DstPort), h.TTL, mark))
		}
		out = append(out, "  "+s.Table+"/"+s.Chain+" "+kernelAction(s)+" "+ruleText(s))
	}
	return out
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func kernelAction(s trace.Step) string {
	switch s.Action {
	case trace.ActJump, trace.ActGoto:
		return "JUMP:" + s.Target
	case trace.ActReturn:
		return "0xfffffffb"
	case trace.ActPolicy:
		return "policy:" + s.Target
	case trace.ActMark, trace.ActContinue, trace.ActCount:
		return "CONTINUE"
	case trace.ActDrop:
		return "DROP"
	}
	return "ACCEPT"
}

func ruleText(s trace.Step) string {
	if s.Action == trace.ActPolicy {
		return ""
	}
	return strings.Join(strings.Fields(s.Text), " ")
}

var srcPort = regexp.MustCompile(`( \d+\.\d+\.\d+\.\d+):\d+ ->`)

// TestGoldenKernelTrace: the packets that the kernel traced take the same
// steps here, one by one: hook, interfaces, addresses, TTL, mark, rule and
// what it did.
func TestGoldenKernelTrace(t *testing.T) {
	b, err := os.ReadFile(shared + "golden/trace-golden-1.condensed.txt")
	if err != nil {
		t.Fatal(err)
	}
	text := srcPort.ReplaceAllString(strings.TrimRight(string(b), "\n"), "$1 ->")
	tr := trace.New(node004(t), trace.Options{})
	var got []string
	for _, f := range []string{
		"172.22.7.200 172.22.7.89:31532 in=eth0",
		"10.244.0.9 10.106.224.38:80",
		"10.244.0.4 10.106.224.38:80 in=cni0",
		"172.22.7.89 10.106.224.38:80 local",
	} {
		a := tr.Trace(flow(t, f))
		if len(a.Outcomes) != 1 || !a.Outcomes[0].Certain {
			t.Fatalf("%s: %d outcomes", f, len(a.Outcomes))
		}
		got = append(got, condensed(a.Outcomes[0])...)
	}
	want := strings.Split(text, "\n")
	for i := range want {
		want[i] = strings.TrimRight(want[i], " ")
	}
	for i := range max(len(got), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(got) {
			g = strings.TrimRight(got[i], " ")
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Fatalf("line %d:\n got %s\nwant %s", i+1, g, w)
		}
	}
}

// golden are the scenarios of the recorded run with the verdict, the source
// and destination the packet has at the end, and the observed block's name.
var golden = []struct {
	name, observed, flow string
	verdict              trace.Verdict
	src, dst             string
	forwarding           string
}{
	{"G1", "E1", "172.22.7.200 172.22.7.89:31532", trace.Forwarded, "10.244.0.1", "10.244.0.4:80", "1"},
	{"G2", "E2", "172.22.7.200 10.106.224.38:80 in=eth0", trace.Forwarded, "10.244.0.1", "10.244.0.4:80", "1"},
	{"G3", "E3", "10.244.0.9 10.106.224.38:80", trace.Forwarded, "10.244.0.9", "10.244.0.4:80", "1"},
	{"G4", "E4", "10.244.0.4 10.106.224.38:80", trace.Forwarded, "10.244.0.1", "10.244.0.4:80", "1"},
	{"G5", "E5", "172.22.7.89 10.106.224.38:80", trace.Output, "10.244.0.1", "10.244.0.4:80", "1"},
	{"G6", "E6", "127.0.0.1 127.0.0.1:31532", trace.Output, "10.244.0.1", "10.244.0.4:80", "1"},
	{"G7", "E7", "172.22.7.89 172.22.7.89:31532", trace.Output, "10.244.0.1", "10.244.0.4:80", "1"},
	{"G8", "E8", "10.244.0.9 172.22.7.200:8080", trace.Forwarded, "172.22.7.89", "172.22.7.200:8080", "1"},
	{"G9", "E9", "10.244.0.9 172.22.7.89:31532", trace.Forwarded, "10.244.0.1", "10.244.0.4:80", "1"},
	{"G10", "E10", "172.22.7.200 10.244.0.4:80", trace.Forwarded, "172.22.7.200", "10.244.0.4:80", "1"},
	{"G11", "E11", "10.244.0.1 10.244.0.4:80", trace.Output, "10.244.0.1", "10.244.0.4:80", "1"},
	{"E12", "E12", "172.22.7.200 172.22.7.89:31532", trace.Dropped, "172.22.7.200", "10.244.0.4:80", "0"},
	{"E13", "E13", "10.244.0.9 10.106.224.38:80", trace.Dropped, "10.244.0.9", "10.244.0.4:80", "0"},
	{"E14", "E14", "172.22.7.89 10.106.224.38:80", trace.Output, "10.244.0.1", "10.244.0.4:80", "0"},
	{"E15", "E15", "10.244.0.9 10.244.0.4:80", trace.Forwarded, "10.244.0.9", "10.244.0.4:80", "0"},
	{"E16", "E16", "10.244.0.1 10.244.0.4:80", trace.Output, "10.244.0.1", "10.244.0.4:80", "0"},
}

// TestGolden: verdict, addresses and the rules of the nat table that counted
// are those of the recorded run, on both iptables variants.
func TestGolden(t *testing.T) {
	for _, file := range []string{"observed-legacy.txt", "observed-nft.txt"} {
		blocks := observed(t, file)
		for _, g := range golden {
			t.Run(g.name+"/"+file, func(t *testing.T) {
				h := node004(t)
				h.Sysctls["net.ipv4.ip_forward"] = g.forwarding
				a := trace.New(h, trace.Options{}).Trace(flow(t, g.flow))
				if len(a.Outcomes) != 1 {
					t.Fatalf("%d outcomes", len(a.Outcomes))
				}
				o := a.Outcomes[0]
				if got := netip.AddrPortFrom(o.Dst, o.DstPort).String(); o.Verdict != g.verdict || o.Src.String() != g.src || got != g.dst || !o.Certain {
					t.Errorf("%s %s -> %s certain %t (%s), want %s %s -> %s", o.Verdict, o.Src, got, o.Certain, o.Reason, g.verdict, g.src, g.dst)
				}
				var hit []string
				for _, s := range o.Steps {
					if s.Table == "nat" && s.Action != trace.ActPolicy {
						hit = append(hit, s.Chain+" "+jumpOf(s.Text))
					}
				}
				slices.Sort(hit)
				if want := blocks[g.observed]; !slices.Equal(hit, want) {
					t.Errorf("rules that counted:\n got %q\nwant %q", hit, want)
				}
			})
		}
	}
}

func jumpOf(text string) string {
	_, after, _ := strings.Cut(text, " -j ")
	name, _, _ := strings.Cut(after, " ")
	return name
}

// observed reads "### E1 ..." blocks: "CHAIN TARGET" of every rule that
// counted, sorted.
func observed(t *testing.T, file string) map[string][]string {
	b, err := os.ReadFile(filepath.Join(shared, "golden", file))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	name := ""
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "### "):
			name = f[1]
		case name != "" && len(f) > 4 && strings.HasSuffix(f[0], ":") && strings.HasPrefix(line, " "):
			out[name] = append(out[name], strings.TrimSuffix(f[0], ":")+" "+f[3])
		}
	}
	for _, v := range out {
		slices.Sort(v)
	}
	return out
}
