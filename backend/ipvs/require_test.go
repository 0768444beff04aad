package ipvs

import (
	"errors"
	"strings"
	"testing"

	"portolan/kernel/ipvs"
	"portolan/service"
)

// R160: the modules of the document are ip_vs, its schedulers and nf_conntrack_ipv4,
// which Linux 4.19 made one with nf_conntrack. So no list of modules is asked, where
// built-in ones are not: what is needed is tried, and a refusal names the module.
func TestR160WhatTheKernelLacks(t *testing.T) {
	if text := ipvs.ErrMissing.Error(); !strings.Contains(text, "module ip_vs") {
		t.Error(text)
	}
	inNamespace(t)
	b := live(t, service.IPv4)
	for _, scheduler := range []string{"rr", "wrr", "sh"} {
		b.options.Scheduler = scheduler
		if err := b.Probe(t.Context()); err != nil {
			t.Errorf("%s: %v", scheduler, err)
		}
	}
	b.options.Scheduler = "nosuch"
	err := b.Probe(t.Context())
	if err == nil || !strings.Contains(err.Error(), "module ip_vs_nosuch") || errors.Is(err, ipvs.ErrMissing) {
		t.Errorf("a scheduler that no module has: %v", err)
	}
}
