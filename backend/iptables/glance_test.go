package iptables

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/service"
)

// What a glance finds missing is put back without a look at anything else; what it
// cannot see, it does not make up.
func TestGlance(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *iptables.Tool) {
		if tool.Variant != iptables.NFT {
			t.Skip("a glance at legacy tables costs what a look costs")
		}
		b := backendFor(tool)
		s := writeEveryShape(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		notices := b.Changes(ctx)
		whole := save(t, tool)
		family := map[iptables.Family]string{iptables.IPv4: "ip", iptables.IPv6: "ip6"}[tool.Family]
		program := strings.TrimSuffix(tool.RestoreProgram, "-restore")
		for _, harm := range []struct {
			command string
			seen    bool
		}{
			{program + " -t nat -A POSTROUTING -p tcp -j ACCEPT", false},
			{program + " -t nat -D POSTROUTING -p tcp -j ACCEPT", false},
			{program + " -t nat -D PREROUTING 1", true},
			{program + " -t filter -D INPUT 1", true},
			{program + " -t nat -F", true},
			{program + " -t filter -F", true},
			{program + " -t mangle -X KUBE-PROXY-CANARY", true},
			{"nft delete table " + family + " nat", true},
			{"nft delete table " + family + " mangle", true},
			{"nft flush ruleset", true},
		} {
			words := strings.Fields(harm.command)
			if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", harm.command, err, out)
			}
			n := <-notices
			if n.By != words[0] || (n.Glance != nil) != harm.seen {
				t.Errorf("%s: notice %+v", harm.command, n)
			}
			if n.Glance == nil {
				continue
			}
			r, err := s.Repair(t.Context(), *n.Glance)
			must(t, err)
			if r.Writes != 1 || r.Damage.None() || r.Damage.Missing != r.Created {
				t.Errorf("%s: repair %+v", harm.command, r)
			}
			if got := save(t, tool); got != whole {
				t.Errorf("%s: after the repair:\n%s\nwant\n%s", harm.command, got, whole)
			}
			// The repair is not taken for what somebody else did, or only once more.
			r, err = s.Reconcile(t.Context())
			must(t, err)
			if r.Writes != 0 || !r.Damage.None() {
				t.Errorf("%s: the look after it: %+v", harm.command, r)
			}
		}
	})
}

// Somebody else flushes a table right before we empty the one chain of it that is to
// be written: nft counts one transaction, as we do.
func TestFlushBehindAWriteThatEmpties(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *iptables.Tool) {
		if tool.Variant != iptables.NFT {
			t.Skip("legacy tables have no transactions to count")
		}
		flush := filepath.Join(t.TempDir(), "flush")
		program := tool.RestoreProgram
		tool.RestoreProgram = filepath.Join(t.TempDir(), "restore")
		script := fmt.Sprintf("#!/bin/sh\n[ -e %s ] && rm %s && %s -t filter -F\nexec %s \"$@\"\n", flush, flush, strings.TrimSuffix(program, "-restore"), program)
		must(t, os.WriteFile(tool.RestoreProgram, []byte(script), 0o755))
		b := backendFor(tool)
		node, services := everyShape(b.options.Family)
		local := *services[2]
		local.ExternalPolicy, local.Ports = service.Local, slices.Clone(local.Ports)
		with := func(on string) []*service.Service {
			next := local
			next.Ports = slices.Clone(local.Ports[:1])
			next.Ports[0].Endpoints = slices.Clone(next.Ports[0].Endpoints[:1])
			next.Ports[0].Endpoints[0].Ready, next.Ports[0].Endpoints[0].Serving, next.Ports[0].Endpoints[0].Node = true, true, on
			return []*service.Service{&next}
		}
		s := dataplane.NewSync(b)
		fill(t, s, b, node, with("elsewhere"))
		_, err := s.Apply(t.Context())
		must(t, err)
		whole := save(t, tool)
		notices := b.Changes(t.Context())
		must(t, os.WriteFile(flush, nil, 0o644))
		fill(t, s, b, node, with(node.Name))
		_, err = s.Apply(t.Context())
		must(t, err)
		n := <-notices
		if n.Glance == nil {
			t.Fatalf("notice %+v", n)
		}
		_, err = s.Repair(t.Context(), *n.Glance)
		must(t, err)
		fill(t, s, b, node, with("elsewhere"))
		_, err = s.Apply(t.Context())
		must(t, err)
		if now := save(t, tool); now != whole {
			t.Errorf("after the repair\n%s\nwant\n%s", now, whole)
		}
	})
}
