package trace_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
)

// kind002 is the node of document D002.
func kind002(t testing.TB) *netfilter.Host {
	return load(t, detect.Options{}, shared+"dumps/002-kind-v1.23.5-iptables.save.txt", "testdata/kind002.yaml")
}

// text makes a host of texts.
func hostOf(t testing.TB, o detect.Options, texts ...string) *netfilter.Host {
	t.Helper()
	var all []detect.Text
	for i, x := range texts {
		all = append(all, detect.Text{Name: fmt.Sprintf("text%d", i), Text: x})
	}
	h, err := detect.Host(o, all...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// only traces a flow that has one certain outcome.
func only(t testing.TB, h *netfilter.Host, f string) trace.Outcome {
	t.Helper()
	a := trace.New(h, trace.Options{Reply: true}).Trace(flow(t, f))
	if len(a.Outcomes) != 1 || !a.Outcomes[0].Certain {
		t.Fatalf("%s: %d outcomes, the first %s certain %t: %s %v", f, len(a.Outcomes), a.Outcomes[0].Verdict, a.Outcomes[0].Certain, a.Outcomes[0].Reason, a.Outcomes[0].Doubts)
	}
	return a.Outcomes[0]
}

// path lists the steps of a table as "CHAIN:rule", without policies.
func path(o trace.Outcome, table string) string {
	var out []string
	for _, s := range o.Steps {
		if s.Table == table && s.Action != trace.ActPolicy {
			out = append(out, fmt.Sprintf("%s:%d", s.Chain, s.Rule))
		}
	}
	return strings.Join(out, " ")
}

// hooks lists the hooks passed.
func hooks(o trace.Outcome) string {
	var out []string
	for _, h := range o.Hops {
		out = append(out, h.Hook.String())
	}
	return strings.Join(out, " ")
}

func equal(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// dst is the packet's destination at the end.
func dst(o trace.Outcome) string {
	if o.DstPort == 0 {
		return o.Dst.String()
	}
	return netip.AddrPortFrom(o.Dst, o.DstPort).String()
}

// ends lists the outcomes of a flow as "share verdict dst", sorted.
func ends(t testing.TB, h *netfilter.Host, f string) []string {
	t.Helper()
	var out []string
	for _, o := range trace.New(h, trace.Options{}).Trace(flow(t, f)).Outcomes {
		out = append(out, fmt.Sprintf("%s %s %s", o.Share.RatString(), o.Verdict, dst(o)))
	}
	slices.Sort(out)
	return out
}

const plainHost = `interfaces: [{name: eth0, addresses: [192.0.2.1/24]}, {name: eth1, addresses: [198.51.100.1/24]}]
routes: [{to: default, via: 192.0.2.254, dev: eth0}]
sysctls: {net.ipv4.ip_forward: "1"}
`
