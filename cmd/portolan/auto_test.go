package main

import (
	"errors"
	"iter"
	"slices"
	"testing"

	"portolan/config"
)

// saved is what iptables-save prints, and then err when there is one.
func saved(err error, lines ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, line := range lines {
			if !yield(line, nil) {
				return
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

func TestModeOfRulesThatAreThere(t *testing.T) {
	const services, singular, plural = ":KUBE-SERVICES - [0:0]", ":KUBE-NODE-PORT - [0:0]", ":KUBE-NODEPORTS - [0:0]"
	for _, c := range []struct {
		want  config.Mode
		err   error
		lines []string
	}{
		{want: config.Auto},
		{want: config.Auto, err: errors.New("no table")},
		{want: config.Auto, lines: []string{":PREROUTING ACCEPT [0:0]", ":KUBE-KUBELET-CANARY - [0:0]", "-A PREROUTING -j DOCKER"}},
		{want: config.Auto, lines: []string{singular}}, // a rest of somebody's
		{want: config.IPTables, lines: []string{":PREROUTING ACCEPT [0:0]", plural, services}},
		{want: config.IPTables, lines: []string{services}}, // nobody has a NodePort
		{want: config.IPVS, lines: []string{":PREROUTING ACCEPT [0:0]", ":KUBE-LOAD-BALANCER - [0:0]", singular, services}},
		{want: config.IPTables, lines: []string{singular, plural, services}},
		{want: config.IPTables, lines: []string{services, `-A KUBE-SERVICES -m comment --comment ":KUBE-NODE-PORT"`}},
	} {
		if got := modeOf(saved(c.err, c.lines...)); got != c.want {
			t.Errorf("%q: %s, want %s", slices.Concat(c.lines), got, c.want)
		}
	}
}
