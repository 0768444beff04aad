package main

import (
	"strings"
	"testing"
)

// Every flag of kube-proxy 1.37.2 is a flag of the proxy; package config tests what
// those of the configuration do.
func TestProxyHasEveryFlagOfKubeProxy(t *testing.T) {
	cmd := newProxyCommand()
	cmd.InitDefaultHelpFlag()
	rows := 0
	for row := range strings.SplitSeq(readFile(t, "../../testdata/kube-proxy-1.37.2/flags.tsv"), "\n") {
		name, found := strings.CutPrefix(row, "--")
		if !found {
			continue
		}
		rows++
		columns := strings.Split(name, "\t")
		flag := cmd.Flags().Lookup(columns[0])
		if flag == nil {
			t.Errorf("no flag --%s", columns[0])
			continue
		}
		if flag.Shorthand != strings.TrimPrefix(columns[1], "-") {
			t.Errorf("--%s: shorthand %q, not %q", columns[0], flag.Shorthand, columns[1])
		}
	}
	if rows != 57 {
		t.Errorf("%d flags were looked at", rows)
	}
}
