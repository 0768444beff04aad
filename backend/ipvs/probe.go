package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"portolan/kernel/ipset"
	"portolan/kernel/iptables"
	"portolan/kernel/ipvs"
)

// probeAddr is for documentation only (RFC 5737, RFC 3849).
var probeAddr = map[bool]netip.Addr{false: netip.MustParseAddr("198.51.100.0"), true: netip.MustParseAddr("2001:db8::")}

// Probe tries whether the kernel and the programs take what this mode writes, with
// things that lead nowhere and are removed again. The error names everything that is
// missing.
func (b *Backend) Probe(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	missing := func(what string, err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("ipvs: this kernel lacks %s: %w", what, err)
	}
	return errors.Join(
		missing("the scheduler "+b.options.Scheduler+" (module ip_vs_"+b.options.Scheduler+")", b.tryServer()),
		missing("dummy devices (module dummy)", b.options.Kernel.Device.Ensure()),
		b.trySets(ctx, missing),
	)
}

// tryServer makes a virtual server, unless one with the scheduler is there already.
func (b *Backend) tryServer() error {
	k := b.options.Kernel.Servers
	list, err := k.Servers()
	if err != nil {
		return err
	}
	s := ipvs.Server{ID: ipvs.ID{Protocol: ipvs.TCP, Addr: netip.AddrPortFrom(probeAddr[b.ipv6()], 20000)}, Scheduler: b.options.Scheduler}
	for _, there := range list {
		if there.Scheduler == s.Scheduler && there.ID.Addr.Addr().Is6() == b.ipv6() {
			return nil
		}
	}
	if err := ignore(k.AddServer(s), unix.EEXIST); err != nil {
		return err
	}
	return k.DeleteServer(s.ID)
}

// trySets makes a set of each type and tries what rules match with.
func (b *Backend) trySets(ctx context.Context, missing func(string, error) error) error {
	k := b.options.Kernel
	name := fmt.Sprintf("KUBE-PORTOLAN-TRY%d", os.Getpid())
	var errs []error
	for _, typ := range []ipset.Type{ipset.HashIP, ipset.HashIPPortIP, ipset.HashIPPortNet, ipset.BitmapPort, ipset.HashIPPort} {
		s := ipset.Set{Name: name, Type: typ, IPv6: b.ipv6()}
		if err := missing("sets of type "+string(typ), k.Sets.Create(s)); err != nil {
			errs = append(errs, err)
			continue
		}
		if typ == ipset.HashIPPort && !b.matchesAlready() {
			errs = append(errs, b.tryRules(ctx, name))
		}
		errs = append(errs, k.Sets.Destroy(name))
	}
	return errors.Join(errs...)
}

// matchesAlready tells whether rules match with our sets, as they do after a restart,
// which then writes nothing.
func (b *Backend) matchesAlready() bool {
	n, err := b.options.Kernel.Sets.References(b.name(clusterIP))
	return err == nil && n > 0
}

// tryRules tries what rules match with, a set of this name among it.
func (b *Backend) tryRules(ctx context.Context, set string) error {
	whats := []string{"NAT", "rules that match with a set (module xt_set)", "rules that match bridged packets (module xt_physdev)"}
	accepted, err := b.options.Kernel.Tool.Accepts(ctx,
		iptables.Trial{Table: "nat", Rule: "-j MASQUERADE"},
		iptables.Trial{Table: "filter", Rule: "-m set --match-set " + set + " dst,dst"},
		iptables.Trial{Table: "filter", Rule: "-m physdev ! --physdev-is-in"})
	if err != nil {
		return err
	}
	var errs []error
	for i, what := range whats {
		if !accepted[i] {
			errs = append(errs, fmt.Errorf("ipvs: this kernel, or its iptables, lacks %s", what))
		}
	}
	return errors.Join(errs...)
}
