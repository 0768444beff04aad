package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/kernel/ipvs"
)

// modeChains are those of ipvs mode alone. The others of topChains are of iptables
// mode too, and its Cleanup removes them.
var modeChains = []string{natNodePort, natLoadBalancer, natInside, natTo, filterNodePort, filterRanges, filterIPVS,
	"filter/KUBE-IPVS-OUT-FILTER", mangleOut, mangleRanges}

// CleanupRules removes the chains that only this mode has, ours and kube-proxy's, and
// the rules that lead to them from built-in chains and from chains that iptables mode
// has too. It returns what it removed, or would remove in a dry run, as
// iptables.Tool.Remove does.
func CleanupRules(ctx context.Context, tool *iptables.Tool, dryRun bool) ([]string, error) {
	removed, err := tool.Remove(ctx, tables, iptables.Removal{
		Chains: func(chain string) bool { return slices.Contains(modeChains, chain) },
		Shared: ownChain,
	}, dryRun)
	if err != nil {
		err = fmt.Errorf("ipvs: cleanup: %w", err)
	}
	return removed, err
}

// CleanupKernel removes the virtual servers of one family that are ours or
// kube-proxy's, their addresses, the device when no address is left on it, and the
// sets. Rules that match with the sets must be gone before. It returns what it
// removed, or would remove in a dry run.
func (b *Backend) CleanupKernel(ctx context.Context, dryRun bool) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := cleanup{b: b, ctx: ctx, dry: dryRun}
	for _, step := range []func() error{c.look, c.servers, c.device, c.sets} {
		if err := step(); err != nil {
			return c.removed, fmt.Errorf("ipvs: cleanup: %w", err)
		}
	}
	return c.removed, nil
}

// cleanup is one Cleanup: what it found, and what it removed, in words.
type cleanup struct {
	b       *Backend
	ctx     context.Context
	dry     bool
	removed []string

	addrs   []netip.Addr
	targets map[ipvs.ID]*target
	there   []setID
}

// do removes something unless this is a dry run.
func (c *cleanup) do(what string, remove func() error) error {
	if !c.dry {
		if err := errors.Join(c.ctx.Err(), remove()); err != nil {
			return err
		}
	}
	c.removed = append(c.removed, what)
	return nil
}

// look finds what is there, as Observe does.
func (c *cleanup) look() error {
	o := observation{b: c.b, targets: map[ipvs.ID]*target{}}
	o.yield = func(obj dataplane.Object) bool {
		switch obj.Key.Container {
		case setsContainer:
			c.there = append(c.there, c.b.setOf[obj.Key.Name].id)
		case addressesContainer:
			if a, err := netip.ParseAddr(obj.Key.Name); err == nil {
				c.addrs = append(c.addrs, a)
			}
		}
		return true
	}
	if err := errors.Join(o.sets(), o.device()); err != nil {
		return err
	}
	c.targets = o.targets
	return o.servers()
}

func (c *cleanup) servers() error {
	for _, id := range slices.SortedFunc(maps.Keys(c.targets), ipvs.ID.Compare) {
		if !c.targets[id].serves() {
			continue
		}
		if err := c.do("virtual server "+id.String(), func() error { return c.b.options.Kernel.Servers.DeleteServer(id) }); err != nil {
			return err
		}
	}
	return nil
}

// device removes the addresses, and the device when neither family has one left.
func (c *cleanup) device() error {
	d := c.b.options.Kernel.Device
	for _, a := range c.addrs {
		if err := c.do("address "+a.String()+" of "+DeviceName, func() error { return d.Remove(a) }); err != nil {
			return err
		}
	}
	for _, ipv6 := range []bool{false, true} {
		left, exists, err := d.Addresses(ipv6)
		if err != nil || !exists || len(left) > 0 && !(c.dry && ipv6 == c.b.ipv6()) {
			return err
		}
	}
	return c.do("device "+DeviceName, func() error { _, err := d.Delete(); return err })
}

func (c *cleanup) sets() error {
	for _, id := range c.there {
		name := c.b.name(id)
		if err := c.do("set "+name, func() error { return c.b.options.Kernel.Sets.Destroy(name) }); err != nil {
			return err
		}
	}
	return nil
}

// Traces tells whether there may be something of this mode in the kernel, ours or
// kube-proxy's, without loading a module.
func Traces() (bool, error) {
	if _, err := os.Stat("/proc/thread-self/net/ip_vs"); err == nil {
		return true, nil
	}
	d, err := ipvs.OpenDevice(DeviceName)
	if err != nil {
		return false, err
	}
	defer d.Close()
	_, exists, err := d.Addresses(false)
	return exists, err
}
