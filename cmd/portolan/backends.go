package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"portolan/agent"
	backend "portolan/backend/iptables"
	"portolan/config"
	"portolan/kernel/iptables"
	"portolan/metrics"
	"portolan/service"
)

// toolFamilies pairs the families of the model with those of the programs.
var toolFamilies = []struct {
	model service.Family
	tool  iptables.Family
}{{service.IPv4, iptables.IPv4}, {service.IPv6, iptables.IPv6}}

// backends are those of the IP families that this host can program.
type backends struct {
	families []agent.Family
	variant  iptables.Variant                       // in iptables and ipvs mode
	dropped  map[service.Family]metrics.ReadDropped // but in ipvs mode

	// wasLarge tells whether the rules in force are those of a large cluster; nil
	// where rules are alike in any.
	wasLarge func() bool
}

// newBackends fails when no family can be programmed, and says which are left out
// and why.
func newBackends(ctx context.Context, c config.Config, log *slog.Logger, trouble func(service.Family, error)) (out backends, err error) {
	if c.Mode == config.NFTables {
		out.families, out.dropped, err = newTables(c, log, trouble)
		return out, err
	}
	host, err := iptables.Detect(ctx)
	if err != nil {
		return out, err
	}
	out.variant = host.Variant
	if host.Warning != "" {
		log.Warn("iptables", "warning", host.Warning)
	}
	tools, err := usableTools(ctx, host, c.Mode, log)
	if err != nil {
		return out, err
	}
	if c.Mode == config.IPVS {
		out.families, err = newServers(ctx, c, tools, log)
		return out, err
	}
	out.wasLarge = func() bool { return anyBare(ctx, tools) }
	out.families, out.dropped = newRules(ctx, c, host, tools, log)
	return out, nil
}

// newRules returns a backend of iptables mode for each family that has programs, and
// what reads its counters.
func newRules(ctx context.Context, c config.Config, host iptables.Host, tools map[service.Family]*iptables.Tool, log *slog.Logger) (families []agent.Family, dropped map[service.Family]metrics.ReadDropped) {
	dropped = map[service.Family]metrics.ReadDropped{}
	counters := map[service.Family]backend.Counters{}
	for f, tool := range tools {
		var err error
		if counters[f], err = backend.EnsureCounters(ctx, tool); err != nil {
			log.Info("some packets are not counted", "family", f, "reason", err)
		}
	}
	blind := func(err error) { log.Error("what others do to the rules is noticed late", "error", err) }
	watch, err := iptables.NewWatch(slices.Collect(maps.Values(tools))...)
	if err != nil {
		blind(err)
	} else {
		go watch.Run(ctx)
	}
	for _, f := range toolFamilies {
		tool := tools[f.model]
		if tool == nil {
			continue
		}
		options := backend.Options{
			Family:        f.model,
			Layout:        layoutOf(c),
			MasqueradeBit: c.MasqueradeBit,
			RandomFully:   tool.RandomFully(),
			Nfacct:        counters[f.model],
			LiberalTCP:    c.Conntrack.TCPBeLiberal || liberalTCP(),
			Tool:          tool,
			Watch:         watch,
			Trouble:       blind,
		}
		log.Info("iptables", "family", f.model, "variant", tool.Variant, "version", tool.Version, "reason", host.Reason)
		b := backend.New(options)
		if host.Ready(f.tool) { // else there is little to list
			b.LookAhead(ctx)
		}
		families, dropped[f.model] = append(families, agent.Family{Family: f.model, Backend: b}), b.Dropped
	}
	return families, dropped
}

// anyBare tells whether rules of some family are those of a large cluster, which have no
// comments.
func anyBare(ctx context.Context, tools map[service.Family]*iptables.Tool) bool {
	for _, tool := range tools {
		if bare, err := backend.WithoutComments(ctx, tool); err == nil && bare {
			return true
		}
	}
	return false
}

// usableTools returns the programs of every family that this host can program,
// at least one.
func usableTools(ctx context.Context, host iptables.Host, mode config.Mode, log *slog.Logger) (map[service.Family]*iptables.Tool, error) {
	out := map[service.Family]*iptables.Tool{}
	var errs []error
	for _, f := range toolFamilies {
		tool := host.Tool(f.tool)
		if err := usable(ctx, host, mode, f.model, tool); err != nil {
			errs = append(errs, err)
			log.Warn("an IP family is left out", "family", f.model, "error", err)
			continue
		}
		out[f.model] = tool
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no IP family can be programmed: %w", errors.Join(errs...))
	}
	return out, nil
}

// usable tells why a family cannot be programmed: no such addresses on this
// host, no program, or a kernel without NAT for it. Where there is no rule, ipvs mode
// tries more than that by itself.
func usable(ctx context.Context, host iptables.Host, mode config.Mode, f service.Family, tool *iptables.Tool) error {
	if f == service.IPv6 {
		if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
			return errors.New("this host has no IPv6")
		}
	}
	if err := tool.Missing(); err != nil {
		return err
	}
	switch {
	case host.Ready(tool.Family):
		return tool.Check(ctx)
	case mode == config.IPVS && len(tool.Filled("nat")) == 0:
		return nil
	}
	for _, err := range tool.Save(ctx, "nat") {
		if err != nil {
			return err
		}
	}
	return nil
}

// describeTools says for "portolan version" what this host uses.
func describeTools(ctx context.Context) []string {
	host, err := iptables.Detect(ctx)
	if err != nil {
		return []string{fmt.Sprintf("iptables: not available: %v", err)}
	}
	out := []string{fmt.Sprintf("iptables: %s, %s variant: %s", host.Tool(iptables.IPv4).Version, host.Variant, host.Reason)}
	if host.Warning != "" {
		out = append(out, "warning: "+host.Warning)
	}
	return out
}

// liberalTCP tells whether conntrack takes out-of-window packets for good ones,
// so that none is INVALID for that reason.
func liberalTCP() bool {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal")
	value := strings.TrimSpace(string(text))
	return err == nil && value != "" && value != "0"
}
