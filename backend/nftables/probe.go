package nftables

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"portolan/kernel/nft"
)

// probeTable is the throw-away table of Probe.
const probeTable = "portolan-probe"

// feature is something of the kernel that our tables need.
type feature struct {
	name string
	// rules of one chain, in the words of Base and Render.
	rules []string
	hook  string
	set   string // one of ours
}

// features lists what is used, with the kernel that first has it and, where it
// can be left out of a kernel, the option that brings it.
func (w *words) features() []feature {
	const eps = slotMap + "1"
	clients, endpoint := affinity, w.ip+" daddr . th dport"
	if w.byPort {
		clients, endpoint = affinityAt+"1", w.ip+" daddr"
	}
	return []feature{
		{name: "nat chains (CONFIG_NFT_NAT)", hook: "type nat hook prerouting" + atDNAT},
		{name: "filter chains", hook: "type filter hook forward" + atFilter},
		{name: "a map of endpoints", set: eps},
		{name: "a map of chains", set: balancers},
		{name: "ranges in a concatenation (Linux 5.6)", set: sources},
		{name: "a map with time-outs", set: clients},
		{name: "numgen (CONFIG_NFT_NUMGEN) and DNAT to address and port of a map",
			set: eps, hook: "type nat hook prerouting" + atDNAT, rules: []string{"dnat " + w.ip + " to " + w.service + " . numgen random mod 1 map @" + eps}},
		{name: "masquerade (CONFIG_NFT_MASQ)", hook: "type nat hook postrouting" + atSNAT, rules: []string{"ct status dnat masquerade fully-random"}},
		{name: "conntrack (CONFIG_NFT_CT)", hook: "type filter hook forward" + atFilter, rules: []string{"ct state new counter"}},
		{name: "reject (CONFIG_NFT_REJECT)", hook: "type filter hook forward" + atFilter, rules: []string{"reject"}},
		{name: "type of an address (CONFIG_NFT_FIB)", hook: "type filter hook prerouting" + atFilter, rules: []string{"fib daddr type local counter"}},
		{name: "the mark of a packet", hook: "type filter hook prerouting" + atFilter, rules: []string{"meta mark set meta mark | 0x00000001"}},
		{name: "learning from packets", set: clients, hook: "type filter hook prerouting" + afterDNAT,
			rules: []string{"update @" + clients + " { " + w.client() + " timeout 10s : " + endpoint + " } meta priority set none"}},
	}
}

// Probe tries in a table that never comes to be whether the kernel takes what
// Base and Render write. The error names every feature that it lacks.
func (b *Backend) Probe() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lacking(b.words.features())
}

// lacking tries features together, and one by one where that fails.
func (b *Backend) lacking(features []feature) error {
	// Each look costs the kernel some 15 ms, so that what is missing is only
	// looked for where something is.
	err := b.tryFeatures(features...)
	if err == nil {
		return nil
	}
	var errs []error
	for _, f := range features {
		err := b.tryFeatures(f)
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("nftables: probe: %w (needs CAP_NET_ADMIN)", err)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("nftables: this kernel lacks %s: %w", f.name, err))
		}
	}
	if len(errs) == 0 {
		return fmt.Errorf("nftables: this kernel takes each part of our tables and not all together: %w", err)
	}
	return errors.Join(errs...)
}

// tryFeatures has the kernel look at a table and take nothing of it.
func (b *Backend) tryFeatures(features ...feature) error {
	// A name that no other process uses at the same time.
	batch := nft.NewBatch(nft.Table{Family: b.table.Family, Name: fmt.Sprintf("%s-%d", probeTable, os.Getpid())})
	batch.AddTable(0)
	made := map[string]bool{}
	for i, f := range features {
		if f.set != "" && !made[f.set] {
			made[f.set] = true
			s, _ := shapeOf(f.set)
			batch.AddSet(b.words.setOf(f.set, s), 0)
		}
		if f.hook == "" {
			continue
		}
		name := fmt.Sprintf("probe-%d", i)
		chain, err := parseHook(name, f.hook)
		if err != nil {
			return err
		}
		batch.AddChain(chain, 0)
		for _, text := range f.rules {
			r, err := b.words.rule(name, text)
			if err != nil {
				return err
			}
			batch.AddRule(r, 0)
		}
	}
	return b.options.Conn.Check(batch)
}
