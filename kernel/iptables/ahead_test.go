package iptables

import (
	"slices"
	"strings"
	"testing"
)

// TestAhead: what was listed ahead is what would be listed now, or nothing.
func TestAhead(t *testing.T) {
	tables := []string{"filter", "nat", "mangle"}
	forVariants(t, func(t *testing.T, tool *Tool) {
		restore := func(text string) {
			t.Helper()
			if err := tool.Restore(t.Context(), []byte(text)); err != nil {
				t.Error(err)
			}
		}
		rules := func(from func(func(string, error) bool)) (out []string) {
			for line, err := range from {
				if err != nil {
					t.Error(err)
				}
				if !strings.HasPrefix(line, "#") { // which tells the time
					out = append(out, line)
				}
			}
			return out
		}
		var a Ahead
		if a.Take() != nil {
			t.Error("something was listed by nobody")
		}
		if a.Begin(t.Context(), tool, tables...); tool.Variant == Legacy && (a.Take() != nil || tool.Loaded("nat")) {
			t.Error("tables that are not loaded were listed, which loads them")
		}
		restore("*nat\n:KUBE-A - [0:0]\n-A OUTPUT -j KUBE-A\nCOMMIT\n*filter\nCOMMIT\n*mangle\nCOMMIT\n*raw\n:KUBE-A - [0:0]\nCOMMIT\n")
		a.Begin(t.Context(), tool, tables...)
		from := a.Take()
		if from == nil {
			t.Error("nothing was listed ahead")
			return
		}
		if got, want := rules(from), rules(tool.SaveAll(t.Context(), tables...)); !slices.Equal(got, want) || !slices.Contains(got, "-A OUTPUT -j KUBE-A") {
			t.Errorf("%q, not %q", got, want)
		}
		if a.Take() != nil {
			t.Error("taken twice")
		}
		a.Begin(t.Context(), tool, tables...)
		restore("*nat\n-A OUTPUT -j KUBE-A\nCOMMIT\n")
		if a.Take() != nil {
			t.Error("somebody has written since")
		}
		a.Begin(t.Context(), tool, tables...)
		program := a.from.cmd
		if a.drop(); a.Take() != nil || program.ProcessState == nil {
			t.Error("it is not given up")
		}
	})
}
