package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

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
// has too. It returns what it removed, or would remove in a dry run, in the words
// "table: -X CHAIN" and "table: -D CHAIN rule". A chain that a foreign chain leads to
// is emptied, stays, and is an error.
func CleanupRules(ctx context.Context, tool *iptables.Tool, dryRun bool) ([]string, error) {
	var removed []string
	var errs []error
	for _, table := range tables {
		if !tool.Loaded(table) {
			continue
		}
		l, err := findLeftovers(ctx, tool, table)
		if err != nil {
			errs = append(errs, fmt.Errorf("ipvs: cleanup: %w", err))
			continue
		}
		list := l.commands()
		if len(list) > 0 && !dryRun {
			if err := tool.Restore(ctx, l.text(list)); err != nil {
				errs = append(errs, fmt.Errorf("ipvs: cleanup: %w", err))
				continue
			}
		}
		for _, command := range list {
			removed = append(removed, table+": "+command)
		}
		errs = append(errs, l.inUse()...)
	}
	return removed, errors.Join(errs...)
}

// leftovers is what of this mode is in one table.
type leftovers struct {
	table   string
	chains  map[string]bool
	lead    []string          // "CHAIN rule", as saved, from built-in and shared chains
	foreign map[string]string // chain of ours -> a rule of a foreign chain
}

func findLeftovers(ctx context.Context, tool *iptables.Tool, table string) (*leftovers, error) {
	l := &leftovers{table: table, chains: map[string]bool{}, foreign: map[string]string{}}
	builtin := map[string]bool{}
	for line, err := range tool.Save(ctx, table) {
		if err != nil {
			return nil, err
		}
		if declaration, ok := strings.CutPrefix(line, ":"); ok {
			chain, policy, _ := strings.Cut(declaration, " ")
			if slices.Contains(modeChains, table+"/"+chain) {
				l.chains[chain] = true
			}
			builtin[chain] = !strings.HasPrefix(policy, "-")
			continue
		}
		rule, ok := strings.CutPrefix(line, "-A ")
		if !ok {
			continue
		}
		chain, _, _ := strings.Cut(rule, " ")
		target := targetOf(rule)
		switch {
		case l.chains[chain] || !slices.Contains(modeChains, table+"/"+target):
		case builtin[chain] || ownChain(table+"/"+chain):
			l.lead = append(l.lead, rule)
		default:
			l.foreign[target] = rule
		}
	}
	return l, nil
}

// targetOf returns where a saved rule jumps or goes to.
func targetOf(rule string) string {
	for _, option := range []string{" -j ", " -g "} {
		if i := strings.LastIndex(rule, option); i >= 0 {
			target, _, _ := strings.Cut(rule[i+len(option):], " ")
			return target
		}
	}
	return ""
}

func (l *leftovers) commands() []string {
	var out []string
	for _, rule := range l.lead {
		out = append(out, "-D "+rule)
	}
	for _, c := range slices.Sorted(maps.Keys(l.chains)) {
		if l.foreign[c] == "" {
			out = append(out, "-X "+c)
		}
	}
	return out
}

func (l *leftovers) text(commands []string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", l.table)
	for _, c := range slices.Sorted(maps.Keys(l.chains)) {
		fmt.Fprintf(&b, ":%s - [0:0]\n", c)
	}
	for _, command := range commands {
		fmt.Fprintln(&b, command)
	}
	b.WriteString("COMMIT\n")
	return []byte(b.String())
}

func (l *leftovers) inUse() []error {
	var errs []error
	for _, c := range slices.Sorted(maps.Keys(l.foreign)) {
		errs = append(errs, fmt.Errorf("ipvs: cleanup: chain %s of table %s is emptied but stays, since a rule of another program leads to it: -A %s",
			c, l.table, l.foreign[c]))
	}
	return errs
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
