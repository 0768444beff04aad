package iptables

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"portolan/internal/netnstest"
)

// probabilityForms gives 1/n as written and as the kernel gives it back.
func probabilityForms(n int) (written, saved string) {
	written = fmt.Sprintf("%0.10f", 1/float64(n))
	var p float64
	fmt.Sscanf(written, "%g", &p)
	return written, fmt.Sprintf("%.11f", math.Round(p*(1<<31))/(1<<31))
}

// inNamespace runs f in a network namespace of its own, with a lock of its own.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	netnstest.Do(t, f)
}

func forVariants(t *testing.T, f func(t *testing.T, tool *Tool)) {
	for _, v := range []Variant{Legacy, NFT} {
		t.Run(string(v), func(t *testing.T) {
			tool := NewTool(IPv4, v)
			if _, err := exec.LookPath(tool.RestoreProgram); err != nil {
				t.Skipf("%s is not installed", tool.RestoreProgram)
			}
			inNamespace(t, func() { f(t, tool) })
		})
	}
}

func TestRestoreErrorsNameTheLine(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *Tool) {
		const head = "*filter\n:KUBE-A - [0:0]\n-A KUBE-A -j RETURN\n"
		for _, c := range []struct {
			text string
			line int // by the program itself
		}{
			{head + "-A KUBE-A -p tcp --bogus\nCOMMIT\n", 4},
			{head + "-A KUBE-A -d 300.0.0.1 -j DROP\nCOMMIT\n", 4},
			{head + "-D KUBE-A -j DROP\nCOMMIT\n", 4},
			{head + "-N KUBE-A\nCOMMIT\n", 4},
			{"*nat\n:KUBE-A - [0:0]\n-A KUBE-A -p tcp -j REJECT\nCOMMIT\n", map[Variant]int{Legacy: 4, NFT: 3}[tool.Variant]},
			{"*nat\n:KUBE-B - [0:0]\n:KUBE-A - [0:0]\n-A KUBE-A -j KUBE-B\n-X KUBE-B\nCOMMIT\n", 5},
		} {
			err := tool.Restore(t.Context(), []byte(c.text))
			var e *RestoreError
			if !errors.As(err, &e) || !e.Refused || e.Line != c.line {
				t.Errorf("%q: %v (%+v)", c.text, err, e)
			} else if want := strings.Split(c.text, "\n")[c.line-1]; e.Text != want || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: line %q, want %q", c.text, e.Text, want)
			}
		}
		for line, err := range tool.Save(t.Context(), "filter") {
			if err != nil || strings.Contains(line, "KUBE-A") {
				t.Errorf("a refused table was written: %q %v", line, err)
			}
		}
	})
}

func TestRestoreTellsCircumstancesFromRefusals(t *testing.T) {
	tool := NewTool(IPv4, Legacy)
	tool.RestoreProgram = filepath.Join(t.TempDir(), "not-there")
	var e *RestoreError
	if err := tool.Restore(t.Context(), []byte("*filter\nCOMMIT\n")); !errors.As(err, &e) || e.Refused {
		t.Errorf("a missing program: %v", err)
	}
	for _, c := range []struct {
		stderr  string
		line    int
		refused bool
	}{
		{"Another app is currently holding the xtables lock; still 5s 0us time ahead to have a chance to grab the lock...\n", 0, false},
		{"iptables-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n", 0, false},
		{"iptables-nft-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (No such file or directory): rule in chain KUBE-A\n", 3, true},
		{"iptables-restore: line 4 failed\n", 4, true},
		{"iptables-restore v1.8.9 (legacy): unknown option \"--bogus\"\nError occurred at line: 3\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.\n", 3, true},
	} {
		exit := exec.Command("sh", "-c", "exit 4").Run()
		if line := errorLine(c.stderr); line != c.line || refused(exit, line, c.stderr) != c.refused {
			t.Errorf("%q: line %d, refused %v", c.stderr, line, refused(exit, line, c.stderr))
		}
	}
}

func TestRestoreWaitsForTheLockOnlySoLong(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the bound on the lock")
	}
	inNamespace(t, func() {
		lock, err := os.Create(os.Getenv("XTABLES_LOCKFILE"))
		if err != nil {
			t.Error(err)
			return
		}
		defer lock.Close()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			t.Error(err)
			return
		}
		var e *RestoreError
		err = NewTool(IPv4, Legacy).Restore(t.Context(), []byte("*filter\n:KUBE-A - [0:0]\nCOMMIT\n"))
		if !errors.As(err, &e) || e.Refused || !strings.Contains(e.Stderr, "lock") {
			t.Errorf("with the lock held: %v", err)
		}
	})
}

// One rule of the nft program makes a table of iptables unreadable. That is not
// an empty table: who took it for one would write all its jumps again.
func TestTableWithRulesOfNftIsAnErrorNotEmpty(t *testing.T) {
	tool := NewTool(IPv4, NFT)
	for _, program := range []string{tool.RestoreProgram, "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	inNamespace(t, func() {
		if err := tool.Restore(t.Context(), []byte("*nat\n:KUBE-A - [0:0]\n-A PREROUTING -j KUBE-A\nCOMMIT\n")); err != nil {
			t.Error(err)
			return
		}
		const native = "numgen random mod 2 map { 0 : 10.0.0.2, 1 : 10.0.0.3 }"
		if out, err := exec.Command("nft", "add rule ip nat PREROUTING ip daddr 10.0.0.1 dnat to "+native).CombinedOutput(); err != nil {
			t.Errorf("nft: %v: %s", err, out)
			return
		}
		lines := 0
		var last error
		for _, err := range tool.Save(t.Context(), "nat") {
			if last = err; err == nil {
				lines++
			}
		}
		if !errors.Is(last, ErrNotShown) || !strings.Contains(last.Error(), "nft list table ip nat") || lines > 0 {
			t.Errorf("%d lines, then %v", lines, last)
		}
		if h, err := Detect(t.Context()); err != nil || h.Variant != NFT {
			t.Errorf("detect: %+v %v", h, err)
		}
	})
}

func TestDetectFindsTheVariantInUse(t *testing.T) {
	const rules, hint = "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n", "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
	other := map[Variant]Variant{Legacy: NFT, NFT: Legacy}
	forVariants(t, func(t *testing.T, tool *Tool) {
		detect := func() Host {
			h, err := Detect(t.Context())
			if err != nil {
				t.Error(err)
			}
			return h
		}
		if h := detect(); !strings.HasPrefix(h.Reason, "no rules anywhere") || NewTool(IPv4, Legacy).Loaded("filter") {
			t.Errorf("empty host: %+v", h)
		}
		if err := tool.Restore(t.Context(), []byte(rules)); err != nil {
			t.Error(err)
		}
		if h := detect(); h.Variant != tool.Variant || h.Warning != "" {
			t.Errorf("rules in %s: %+v", tool.Variant, h)
		}
		second := NewTool(IPv4, other[tool.Variant])
		if err := second.Restore(t.Context(), []byte(hint+strings.Repeat(rules, 3))); err != nil {
			t.Error(err)
		}
		if h := detect(); h.Variant != second.Variant || h.Warning == "" || h.Reason != "kubelet uses it" {
			t.Errorf("hint in %s, rules in both: %+v", second.Variant, h)
		}
		if got := detect().Tool(IPv6); got.Version == (Version{}) || got.SaveProgram != "ip6tables-"+string(second.Variant)+"-save" {
			t.Errorf("tool %+v", got)
		}
	})
}

// Which variant a host uses, by what each holds: tables, rules, those of a proxy or of
// kubelet; and by what is installed.
func TestChoose(t *testing.T) {
	there := []*Tool{{}}
	for _, c := range []struct {
		legacy, nft holding
		installed   Variant
		want        Variant
	}{
		{holding{tools: there}, holding{}, NFT, Legacy},
		{holding{}, holding{tools: there, rules: 0}, Legacy, NFT},
		{holding{}, holding{}, Legacy, Legacy},
		{holding{tools: there, filled: true}, holding{tools: there}, NFT, Legacy},
		{holding{tools: there}, holding{tools: there, filled: true, proxy: true}, Legacy, NFT},
		{holding{tools: there}, holding{tools: there}, Legacy, Legacy},
		{holding{tools: there, proxy: true}, holding{tools: there, rules: 9}, NFT, Legacy},
		{holding{tools: there, proxy: true}, holding{tools: there, kubelet: true}, Legacy, NFT},
		{holding{tools: there, rules: 5}, holding{tools: there, rules: 4}, NFT, Legacy},
	} {
		if got := choose(c.legacy, c.nft, c.installed); got.Variant != c.want || got.Reason == "" {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{
		"iptables v1.8.9 (nf_tables)\n": "1.8.9 nft", "iptables v1.8.4 (legacy)": "1.8.4 legacy",
		"iptables v1.6.1": "1.6.1 legacy", "ip6tables v1.8 (nf_tables)": "1.8.0 nft",
	} {
		v, variant, err := parseVersion(text)
		if got := v.String() + " " + string(variant); err != nil || got != want {
			t.Errorf("%q: %s %v", text, got, err)
		}
	}
	if _, _, err := parseVersion("what"); err == nil {
		t.Error("no error")
	}
	if (&Tool{Version: Version{1, 6, 1}}).RandomFully() || !(&Tool{Version: Version{1, 6, 2}}).RandomFully() {
		t.Error("random-fully")
	}
}

// A counter may be asked for again.
func TestCounters(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *Tool) {
		err := EnsureCounter("portolan_test")
		if err != nil {
			t.Skipf("no nfacct here: %v", err) // the goroutine ends, and with it the thread
		}
		if err := EnsureCounter("portolan_test"); err != nil {
			t.Errorf("a counter that is there: %v", err)
		}
	})
}

// Trials tell what the programs and the kernel take, and change nothing.
func TestAccepts(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *Tool) {
		for rule, want := range map[string]bool{"-p tcp -j RETURN": true, "-m nfacct --nfacct-name none -j DROP": false, "--bogus": false} {
			if ok, err := tool.Accepts(t.Context(), Trial{"filter", rule}); err != nil || ok[0] != want {
				t.Errorf("%s: %v %v", rule, ok, err)
			}
		}
		ok, err := tool.Accepts(t.Context(), Trial{"nat", "-j MASQUERADE"}, Trial{"filter", "-j MASQUERADE"}, Trial{"filter", "-j DROP"})
		if err != nil || !slices.Equal(ok, []bool{true, false, true}) {
			t.Errorf("of three, the second of which is for the nat table: %v %v", ok, err)
		}
		for line, err := range tool.Save(t.Context(), "filter") {
			if err != nil || strings.Contains(line, "PROBE") {
				t.Errorf("left behind: %q %v", line, err)
			}
		}
	})
}
