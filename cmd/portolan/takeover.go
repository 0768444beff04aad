package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"portolan/agent"
	iptablesbackend "portolan/backend/iptables"
	"portolan/backend/ipvs"
	"portolan/backend/nftables"
	"portolan/config"
	"portolan/kernel/iptables"
	"portolan/kernel/nft"
	"portolan/service"
)

// takeover removes what the Service proxy before us left in another place than ours:
// another mode's rules, kube-proxy's table, the rules of the other variant of
// iptables. As long as they are there their translation may come first, with
// endpoints that nobody keeps any more. They go once ours are in force, so that a
// packet always meets somebody's.
type takeover struct {
	mode    config.Mode
	variant iptables.Variant // of our rules, in iptables and ipvs mode
	log     *slog.Logger
	tell    func(agent.News)
	written chan service.Family
	told    map[service.Family]string // the last error
	removed map[service.Family]bool   // all that was left was, at some time
}

// notTakenOver is the reason of trouble with what is left.
const notTakenOver agent.Reason = "TakeoverFailed"

// takeoverRetry is the time from one try to remove what is left to the next.
const takeoverRetry = 30 * time.Second

func newTakeover(mode config.Mode, variant iptables.Variant, log *slog.Logger, tell func(agent.News)) *takeover {
	return &takeover{mode: mode, variant: variant, log: log, tell: tell,
		written: make(chan service.Family, len(tableFamilies)), told: map[service.Family]string{}, removed: map[service.Family]bool{}}
}

// note hears how an attempt to write went. Full ones are rare, and come after
// everything that might have brought others' rules back.
func (t *takeover) note(r agent.Result) {
	if r.Err != nil || !r.Full {
		return
	}
	select {
	case t.written <- r.Family:
	default: // it is about to be looked at
	}
}

// run works until ctx ends.
func (t *takeover) run(ctx context.Context) error {
	var again <-chan time.Time
	pending := map[service.Family]bool{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-t.written:
			pending[f] = true
		case <-again:
		}
		for f := range pending {
			if t.remove(ctx, f) {
				delete(pending, f)
			}
		}
		if again = nil; len(pending) > 0 {
			again = time.After(takeoverRetry)
		}
	}
}

// remove tells whether nothing is left that is not ours.
func (t *takeover) remove(ctx context.Context, f service.Family) bool {
	removed, err := removeOthers(ctx, f, t.mode, t.variant)
	t.say(f, removed, err == nil)
	news := agent.News{Family: f, Reason: notTakenOver, Over: true, Message: t.told[f]}
	if err == nil || ctx.Err() != nil {
		if t.told[f] != "" {
			t.told[f] = ""
			t.tell(news)
		}
		return true
	}
	news.Over = false
	news.Message = fmt.Sprintf("rules of the Service proxy before could not be removed and may go on translating; it is tried again: %v", err)
	if t.told[f] != news.Message {
		t.told[f] = news.Message
		t.log.Error("not taken over", "family", f, "again", takeoverRetry, "error", news.Message)
	}
	t.tell(news)
	return false
}

// say tells what was removed, and whether that was all. A proxy that has ended leaves rules
// once; what is there again was written since.
func (t *takeover) say(f service.Family, removed []string, all bool) {
	if len(removed) == 0 {
		return
	}
	level, text := slog.LevelInfo, "taken over: the rules of the Service proxy before are removed"
	if t.removed[f] {
		level, text = slog.LevelWarn, "rules of another Service proxy came back and are removed again: it still runs, or somebody restores saved rules; end that, as only one may run on a node"
	}
	t.removed[f] = t.removed[f] || all
	t.log.Log(context.Background(), level, text, "family", f, "removed", len(removed), "first", removed[0])
	t.log.Debug("taken over", "family", f, "removed", removed)
}

// removeOthers removes what Service proxies have in one family where a proxy of this
// mode and variant has nothing, and tells what it did.
func removeOthers(ctx context.Context, f service.Family, mode config.Mode, variant iptables.Variant) ([]string, error) {
	tables := []string{kubeProxyTable}
	if mode != config.NFTables {
		tables = append(tables, nftables.TableName)
	}
	removed, isThere, err := removeTables(ctx, f, tables)
	for _, family := range toolFamilies {
		if family.model != f {
			continue
		}
		for _, tool := range installedTools(ctx, family.tool) {
			ours := mode != config.NFTables && tool.Variant == variant
			if tool.Variant == iptables.NFT && !isThere || ours && mode == config.IPVS {
				continue
			}
			lines, failed := ipvs.CleanupRules(ctx, tool, false)
			removed, err = append(removed, lines...), errors.Join(err, failed)
			if ours {
				continue
			}
			lines, failed = iptablesbackend.New(iptablesbackend.Options{Family: f, Tool: tool}).Cleanup(ctx, false)
			for _, line := range lines {
				removed = append(removed, fmt.Sprintf("iptables, variant %s, %s", tool.Variant, line))
			}
			err = errors.Join(err, failed)
		}
	}
	err = errors.Join(err, outOfReach(ctx, f))
	if mode != config.IPVS {
		lines, failed := cleanupServers(ctx, f, false)
		removed, err = append(removed, lines...), errors.Join(err, failed)
	}
	return removed, err
}

// removeTables removes tables of one family, and tells whether the kernel has
// nf_tables at all.
func removeTables(ctx context.Context, f service.Family, names []string) (removed []string, isThere bool, err error) {
	conn, err := nft.Dial()
	if err != nil {
		return nil, false, nil
	}
	defer conn.Close()
	for _, t := range tableFamilies {
		if t.model != f {
			continue
		}
		if _, err := conn.Tables(t.kernel); err != nil {
			return nil, false, nil
		}
		removed, err = nftables.Cleanup(ctx, conn, t.kernel, names, false)
	}
	return removed, true, err
}
