package iptables

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFilled: only tables with a rule or a chain of somebody's are filled, and to look
// makes none.
func TestFilled(t *testing.T) {
	all := []string{"filter", "nat", "mangle"}
	forVariants(t, func(t *testing.T, tool *Tool) {
		expect := func(when string, want ...string) {
			t.Helper()
			if got := tool.Filled(all...); !slices.Equal(got, want) {
				t.Errorf("%s: filled are %q, not %q", when, got, want)
			}
		}
		restore := func(text string) {
			t.Helper()
			if err := tool.Restore(t.Context(), []byte(text)); err != nil {
				t.Error(err)
			}
		}
		expect("at first")
		if tool.Variant == Legacy && tool.Loaded("filter") {
			t.Error("to look has loaded a table")
		}
		for _, err := range tool.SaveAll(t.Context(), all...) {
			if err != nil {
				t.Error(err)
			}
		}
		expect("listed")
		restore("*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n")
		expect("a rule in nat, a chain in mangle", "nat", "mangle")
		restore("*nat\n-D OUTPUT -j ACCEPT\nCOMMIT\n*filter\n:INPUT DROP [0:0]\n-A INPUT -j ACCEPT\nCOMMIT\n")
		expect("the rule gone, one in filter", "filter", "mangle")
	})
}

// TestHasChain: the kernel is asked, with no program in reach, and a name in a comment
// or of a jump to another chain is no chain.
func TestHasChain(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *Tool) {
		expect := func(when, table string, want bool) {
			t.Helper()
			if has, err := tool.HasChain(table, "KUBE-SERVICES"); has != want || err != nil {
				t.Errorf("%s: %v, %v", when, has, err)
			}
		}
		expect("at first", "nat", false)
		if tool.Variant == Legacy && tool.Loaded("nat") {
			t.Error("to look has loaded a table")
		}
		if err := tool.Restore(t.Context(), []byte("*nat\n:KUBE-SERVICES-2 - [0:0]\n-A OUTPUT -m comment --comment \"no KUBE-SERVICES here\" -j KUBE-SERVICES-2\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
		expect("others", "nat", false)
		if err := tool.Restore(t.Context(), []byte("*nat\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", t.TempDir())
		expect("there", "nat", true)
		expect("another table", "filter", false)
	})
}

// TestDetectStartsNoMoreThanItNeeds: one program for its version, and none that lists
// tables on a node without rules, or where it is clear whose they are.
func TestDetectStartsNoMoreThanItNeeds(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *Tool) {
		started := countStarts(t)
		detect := func(when string, want int) Host {
			before := started()
			h, err := Detect(t.Context())
			if n := started() - before; err != nil || n != want {
				t.Errorf("%s: %d programs, not %d; %v", when, n, want, err)
			}
			return h
		}
		if h := detect("nothing there", 1); h.Ready(IPv4) {
			t.Error("there is a table with rules, it says")
		}
		if err := tool.Restore(t.Context(), []byte("*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n*mangle\n-A OUTPUT -j ACCEPT\nCOMMIT\n")); err != nil {
			t.Error(err)
		}
		list := map[Variant]int{NFT: 1}[tool.Variant] // a table of nft may be anybody's
		if h := detect("rules in two tables", 1+list); h.Variant != tool.Variant || !h.Ready(IPv4) || h.Ready(IPv6) {
			t.Errorf("%+v", h)
		}
		if err := tool.Restore(t.Context(), []byte("*mangle\n:KUBE-PROXY-CANARY - [0:0]\nCOMMIT\n")); err != nil {
			t.Error(err)
		}
		if h := detect("and a canary", 1); h.Variant != tool.Variant || !h.Ready(IPv4) {
			t.Errorf("%+v", h)
		}
	})
}

// countStarts puts scripts before all programs of iptables that note their start, and
// returns how many were started.
func countStarts(t *testing.T) func() int {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	for _, v := range []Variant{Legacy, NFT} {
		script := filepath.Join(dir, "xtables-"+string(v)+"-multi")
		text := "#!/bin/sh\necho >>" + log + "\nPATH=${PATH#*:}\nexec \"${0##*/}\" \"$@\"\n"
		if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, base := range []string{"iptables", "ip6tables"} {
			for _, suffix := range []string{"", "-save", "-restore"} {
				if err := os.Symlink(script, filepath.Join(dir, base+"-"+string(v)+suffix)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := os.Symlink("iptables-nft", filepath.Join(dir, "iptables")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() int {
		text, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		return len(text)
	}
}
