package iptables

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Written forms, each with forms in which iptables-save of 1.8.9 gives it back.
var shapes = []struct {
	written string
	saved   []string
}{
	{`-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`, []string{
		`-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`}},
	{`-j KUBE-FIREWALL`, []string{`-j KUBE-FIREWALL`}},
	{`-m mark ! --mark 0x00004000/0x00004000 -j RETURN`, []string{`-m mark ! --mark 0x4000/0x4000 -j RETURN`}},
	{`-m mark --mark 0xffffffff/0xffffffff -j RETURN`, []string{`-m mark --mark 0xffffffff -j RETURN`}},
	{`-j MARK --xor-mark 0x00004000`, []string{`-j MARK --set-xmark 0x4000/0x0`}},
	{`-j MARK --or-mark 0x80000000`, []string{`-j MARK --set-xmark 0x80000000/0x80000000`}},
	{`-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`, []string{
		`-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`}},
	{`-m comment --comment "block incoming localnet connections" -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`, []string{
		`! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`}},
	{`-m conntrack --ctstate INVALID -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP`, []string{
		`-m conntrack --ctstate INVALID -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP`}},
	{`-m comment --comment "default/web:http cluster IP" -m tcp -p tcp -d 10.96.0.10 --dport 80 ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ`, []string{
		`! -s 10.244.0.0/16 -d 10.96.0.10/32 -p tcp -m comment --comment "default/web:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ`}},
	{`-m comment --comment "default/web:http cluster IP" -m udp -p udp -d fd00::10 --dport 80 ! -i veth+ -j KUBE-MARK-MASQ`, []string{
		`! -i veth+ -d fd00::10/128 -p udp -m comment --comment "default/web:http cluster IP" -m udp --dport 80 -j KUBE-MARK-MASQ`}},
	{`-m comment --comment "a/b has no endpoints" -m addrtype --dst-type LOCAL -m sctp -p sctp --dport 30080 -j REJECT`, []string{
		`-p sctp -m comment --comment "a/b has no endpoints" -m addrtype --dst-type LOCAL -m sctp --dport 30080 -j REJECT --reject-with icmp-port-unreachable`,
		`-p sctp -m comment --comment "a/b has no endpoints" -m addrtype --dst-type LOCAL -m sctp --dport 30080 -j REJECT --reject-with icmp6-port-unreachable`}},
	{`-m comment --comment default/nginx -m tcp -p tcp -d 127.0.0.0/8 --dport 31532 -m nfacct --nfacct-name localhost_nps_accepted_pkts -j KUBE-EXT-2CMXP7HKUVJN7L6M`, []string{
		`-d 127.0.0.0/8 -p tcp -m comment --comment "default/nginx" -m tcp --dport 31532 -m nfacct --nfacct-name localhost_nps_accepted_pkts -j KUBE-EXT-2CMXP7HKUVJN7L6M`}},
	{`-m comment --comment "a/b -> 10.0.0.1:53" -m statistic --mode random --probability 0.3333333333 -j KUBE-SEP-X`, []string{
		`-m comment --comment "a/b -> 10.0.0.1:53" -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-X`}},
	{`-m comment --comment a/b -m statistic --mode random --probability 0.2857142859 -j KUBE-SEP-X`, []string{
		`-m comment --comment "a/b" -m statistic --mode random --probability 0.28571428591 -j KUBE-SEP-X`}},
	{`-m comment --comment a/b -m statistic --mode nth --every 3 --packet 0 -j KUBE-SEP-X`, []string{
		`-m comment --comment "a/b" -m statistic --mode nth --every 3 --packet 0 -j KUBE-SEP-X`}},
	{`-m comment --comment "a/b -> 10.0.0.1:53" -m recent --name KUBE-SEP-X --rcheck --seconds 10800 --reap -j KUBE-SEP-X`, []string{
		`-m comment --comment "a/b -> 10.0.0.1:53" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-X --mask 255.255.255.255 --rsource -j KUBE-SEP-X`,
		`-m comment --comment "a/b -> 10.0.0.1:53" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-X --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -j KUBE-SEP-X`}},
	{`-m comment --comment a/b -m recent --name KUBE-SEP-X --set -m tcp -p tcp -j DNAT --to-destination [fd00::1]:80`, []string{
		`-p tcp -m comment --comment "a/b" -m recent --set --name KUBE-SEP-X --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination [fd00::1]:80`}},
	{`-d 0.0.0.160/0.0.0.240 -j KUBE-PORTOLAN-IPS-160-175`, []string{`-d 0.0.0.160/0.0.0.240 -j KUBE-PORTOLAN-IPS-160-175`}},
	{`-d ::/::f0 -j KUBE-PORTOLAN-IPS-0-f`, []string{`-d ::/::f0 -j KUBE-PORTOLAN-IPS-0-f`}},
	{`-m recent --name KUBE-SEP-X --update --seconds 10800 --reap -p tcp -j DNAT --to-destination 10.0.0.1:80`, []string{
		`-p tcp -m recent --update --seconds 10800 --reap --name KUBE-SEP-X --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.0.0.1:80`}},
	{`-p tcp -m statistic --mode random --probability 0.5000000000 -m recent --name KUBE-SEP-X --set -j DNAT --to-destination 10.0.0.1:80`, []string{
		`-p tcp -m statistic --mode random --probability 0.50000000000 -m recent --set --name KUBE-SEP-X --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.0.0.1:80`}},
	{`-m comment --comment "NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL ! -d ::1/128 -j KUBE-NODEPORTS`, []string{
		`! -d ::1/128 -m comment --comment "NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`}},
	{`-m comment --comment "other traffic to a/b will be dropped by KUBE-PROXY-FIREWALL"`, []string{
		`-m comment --comment "other traffic to a/b will be dropped by KUBE-PROXY-FIREWALL"`}},
}

func TestCanonicalMapsSavedToWritten(t *testing.T) {
	for _, s := range shapes {
		for _, form := range append(s.saved, s.written) {
			if got, ok := Canonical(form); !ok || got != s.written {
				t.Errorf("Canonical(%s)\n = %s, %v\nwant %s", form, got, ok, s.written)
			}
		}
	}
}

// A rule that says anything else must not look like one of ours.
func TestCanonicalKeepsWhatItDoesNotKnow(t *testing.T) {
	ours := `-m comment --comment "a/b cluster IP" -m tcp -p tcp -d 10.96.0.10 --dport 80 -j KUBE-SVC-X`
	if early, ok := Canonical(`-m recent --set --name KUBE-SEP-X -m statistic --mode random --probability 0.5 -j RETURN`); ok {
		t.Errorf("a list that everybody gets into, and then half of them: %s", early)
	}
	for _, other := range []string{
		`-p tcp -d 10.96.0.10/32 -m comment --comment "a/b cluster IP" -m tcp --dport 80 --tcp-flags SYN SYN -j KUBE-SVC-X`,
		`-p tcp -d 10.96.0.10/32 -m comment --comment "a/b cluster IP" -m tcp ! --dport 80 -j KUBE-SVC-X`,
		`! -p tcp -d 10.96.0.10/32 -m comment --comment "a/b cluster IP" -m tcp --dport 80 -j KUBE-SVC-X`,
		`-p tcp -d 10.96.0.10/31 -m comment --comment "a/b cluster IP" -m tcp --dport 80 -j KUBE-SVC-X`,
		`-p tcp -d 10.96.0.10/32 -o eth0 -m comment --comment "a/b cluster IP" -m tcp --dport 80 -j KUBE-SVC-X`,
		`-p tcp -d 10.96.0.10/32 -m comment --comment "a/b cluster IP" -m tcp --dport 80 -g KUBE-SVC-X`,
		`-p tcp -d 10.96.0.10/32 -m comment --comment "a/b cluster IP" -m tcp --dport 81 -j KUBE-SVC-X`,
		`-p tcp -d 10.96.0.10/32 -d 10.96.0.10/32 -m comment --comment "a/b cluster IP" -m tcp --dport 80 -j KUBE-SVC-X`,
		`-p tcp -d 10.96.0.10/32 -m comment --comment "a/b cluster IP" -m tcp --dport 80 -j DNAT --to-destination 1.2.3.4:80 --persistent`,
		`-p tcp -d 10.96.0.10/32 -m comment --comment "a/b cluster IP`,
		``,
	} {
		if got, _ := Canonical(other); got == ours {
			t.Errorf("%s is taken for %s", other, ours)
		}
	}
	for _, rule := range []string{"--mode nth --every 3 --packet 1", "--mode nth --every 4 --packet 0", "--mode random --every 3 --packet 0", "! --mode nth --every 3"} {
		if got, _ := Canonical(`-m statistic ` + rule + ` -j X`); strings.Contains(got, "--mode nth --every 3 --packet 0") {
			t.Errorf("%s is taken for another", rule)
		}
	}
	for _, p := range []string{"0.33333", "0.3333333", "0.4999", "0.5001"} {
		if got, _ := Canonical(`-m statistic --mode random --probability ` + p + ` -j X`); strings.Contains(got, "0.3333333333 ") || strings.Contains(got, "0.5000000000 ") {
			t.Errorf("probability %s becomes %s", p, got)
		}
	}
}

// The kernel keeps 31 bits of a probability, which iptables-save prints with 11
// digits.
func TestCanonicalProbabilityOfAnySize(t *testing.T) {
	for n := 1; n <= 5000; n++ {
		written, saved := probabilityForms(n)
		if got, ok := writtenProbability(saved); !ok || got != written {
			t.Fatalf("1/%d: saved %s becomes %s, want %s", n, saved, got, written)
		}
	}
}

// Any fraction of small numbers is written so that what is saved comes back as it,
// and is none of 1/n but where it is one.
func TestProbabilities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.IntRange(2, 8192).Draw(t, "whole")
		part := rapid.IntRange(1, whole-1).Draw(t, "part")
		written := Probability(part, whole)
		p, err := strconv.ParseFloat(written, 64)
		if err != nil || math.Abs(p-float64(part)/float64(whole)) > 1e-9 {
			t.Fatalf("%d/%d is written %s", part, whole, written)
		}
		saved := fmt.Sprintf("%.11f", math.Round(p*oddsUnit)/oddsUnit)
		for _, form := range []string{written, saved} {
			if got, ok := writtenProbability(form); !ok || got != written {
				t.Fatalf("%d/%d: %s becomes %s, want %s", part, whole, form, got, written)
			}
		}
		if n := math.Round(1 / p); whole%part != 0 && written == strconv.FormatFloat(1/n, 'f', 10, 64) {
			t.Fatalf("%d/%d is written as 1/%v", part, whole, n)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	for _, s := range shapes {
		f.Add(s.written)
		for _, form := range s.saved {
			f.Add(form)
		}
	}
	for _, file := range []string{"001-rules-filter-and-nat.txt", "002-kind-v1.23.5-iptables.save.txt", "004-kubeadm-v1.34.2-flannel-iptables-mode.nat.S.txt"} {
		text, err := os.ReadFile("../../testdata/dumps/" + file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if chain, rule, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "-A "), " "); ok && chain != "" {
				f.Add(rule)
			}
		}
	}
	f.Fuzz(func(t *testing.T, rule string) {
		once, ok := Canonical(rule)
		if !ok {
			return
		}
		if twice, ok := Canonical(once); !ok || twice != once {
			t.Fatalf("Canonical(%q) = %q, and of that %q, %v", rule, once, twice, ok)
		}
	})
}

// BenchmarkCanonical is what a look at the tables does with each rule.
func BenchmarkCanonical(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		for _, s := range shapes {
			if got, _ := Canonical(s.saved[0]); got != s.written {
				b.Fatal(got)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(shapes)), "ns/rule")
}
