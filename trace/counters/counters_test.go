package counters_test

import (
	"os"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace/counters"
)

func host(t *testing.T, paths ...string) *netfilter.Host {
	t.Helper()
	texts, err := detect.Read(paths...)
	if err != nil {
		t.Fatal(err)
	}
	h, err := detect.Host(detect.Options{}, texts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

const dumps = "../../testdata/dumps/"

func find(t *testing.T, sums []counters.Sum, chain string) counters.Sum {
	t.Helper()
	for _, s := range sums {
		if s.Chain == chain {
			return s
		}
	}
	t.Fatalf("no sum for %s in %v", chain, sums)
	return counters.Sum{}
}

func grew(rep counters.Report, chain string, rule int) (packets, bytes uint64) {
	for _, g := range rep.Grown {
		if g.Chain == chain && g.Rule == rule {
			return g.Packets, g.Bytes
		}
	}
	return 0, 0
}

// 5518 jumps to KIND-MASQ-AGENT are 5422 RETURN and 96 MASQUERADE.
func TestR136CounterArithmetic(t *testing.T) {
	s := find(t, counters.Diff(nil, host(t, dumps+"002-kind-v1.23.5-iptables.listing-with-counters.txt")).Sums, "KIND-MASQ-AGENT")
	if !s.OK || s.Text != "5518 came in, 5422 RETURN (rule 1), 96 MASQUERADE (rule 2)" {
		t.Errorf("%t %s", s.OK, s.Text)
	}
}

// The proxy's chains restart their counters, so absolute values do not
// add up there: 23934 came in, 3050 were returned.
func TestR137AbsolutesDoNotAddUp(t *testing.T) {
	s := find(t, counters.Diff(nil, host(t, dumps+"002-kind-v1.23.5-iptables.listing-with-counters.txt")).Sums, "KUBE-POSTROUTING")
	if s.OK {
		t.Errorf("%s", s.Text)
	}
}

// Every new packet to a local address passes the jump to KUBE-NODEPORTS,
// 1233 so far, although that chain is empty.
func TestR138NodePortsJumpCounts(t *testing.T) {
	h := host(t, dumps+"002-kind-v1.23.5-iptables.listing-with-counters.txt")
	rules := h.Table(netfilter.IPv4, netfilter.Unstated, netfilter.NAT).Chain("KUBE-SERVICES").Rules
	last := rules[len(rules)-1]
	if !strings.HasSuffix(last.Text, "-j KUBE-NODEPORTS") || last.Counters.Packets != 1233 {
		t.Errorf("%s %d", last.Text, last.Counters.Packets)
	}
	if c := h.Table(netfilter.IPv4, netfilter.Unstated, netfilter.Filter).Chain("KUBE-NODEPORTS"); len(c.Rules) != 0 {
		t.Errorf("filter KUBE-NODEPORTS has %d rules", len(c.Rules))
	}
}

func skew(t *testing.T) counters.Report {
	return counters.Diff(host(t, dumps+"004-nat-counters.before.txt"), host(t, dumps+"004-nat-counters.after-1053-connections.txt"))
}

// The rules that grew while 1053 connections were made, and by
// how much: one packet of 64 bytes each.
func TestR183R184WhichRulesGrew(t *testing.T) {
	rep := skew(t)
	for _, c := range []struct {
		chain string
		rule  int
	}{{"KUBE-MARK-MASQ", 1}, {"KUBE-POSTROUTING", 2}, {"KUBE-POSTROUTING", 3}} {
		if p, b := grew(rep, c.chain, c.rule); p != 1053 || b != 1053*64 {
			t.Errorf("%s rule %d grew by %d packets, %d bytes", c.chain, c.rule, p, b)
		}
	}
}

// Masqueraded packets end in KUBE-POSTROUTING: 1594 came, 1053 ended
// there, 541 went on to FLANNEL-POSTRTG and the policy (E10).
func TestR185WhatGrewAddsUp(t *testing.T) {
	rep := skew(t)
	s := find(t, rep.Sums, "POSTROUTING")
	if !s.OK || s.Text != "1053 ended in KUBE-POSTROUTING (rule 1), 541 reached the policy" {
		t.Errorf("%t %s", s.OK, s.Text)
	}
	s = find(t, rep.Sums, "KUBE-POSTROUTING")
	if !s.OK || s.Text != "1594 came in, 541 RETURN (rule 1), 1053 MASQUERADE (rule 3)" {
		t.Errorf("%t %s", s.OK, s.Text)
	}
	if p, _ := grew(rep, "POSTROUTING", 3); p != 541 {
		t.Errorf("FLANNEL-POSTRTG jump grew by %d", p)
	}
}

// A packet that is missing is found.
func TestWhatDoesNotAddUp(t *testing.T) {
	b, err := os.ReadFile(dumps + "004-nat-counters.after-1053-connections.txt")
	if err != nil {
		t.Fatal(err)
	}
	h, err := detect.Host(detect.Options{}, detect.Text{Name: "after", Text: strings.Replace(string(b), "121386 7351424 FLANNEL", "121385 7351424 FLANNEL", 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := find(t, counters.Diff(host(t, dumps+"004-nat-counters.before.txt"), h).Sums, "POSTROUTING")
	if s.OK || !strings.Contains(s.Text, "rule 3 should have seen 541 and saw 540") {
		t.Errorf("%t %s", s.OK, s.Text)
	}
}

// A counter that shrank has started again; it says so and proves nothing.
func TestReset(t *testing.T) {
	a := "*nat\n:POSTROUTING ACCEPT [0:0]\n[10:600] -A POSTROUTING -j X\n:X - [0:0]\n[10:600] -A X -j RETURN\nCOMMIT\n"
	b := strings.Replace(a, "[10:600] -A X", "[3:180] -A X", 1)
	ha, _ := detect.Host(detect.Options{}, detect.Text{Name: "a", Text: a})
	hb, _ := detect.Host(detect.Options{}, detect.Text{Name: "b", Text: b})
	rep := counters.Diff(ha, hb)
	if len(rep.Grown) != 1 || !rep.Grown[0].Reset || !strings.Contains(counters.Text(rep), "started again") {
		t.Errorf("%+v", rep.Grown)
	}
	for _, s := range rep.Sums {
		if !s.OK {
			t.Errorf("%+v", s)
		}
	}
}
