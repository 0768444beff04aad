package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"portolan/service"
)

// dropping are the chains with rules that let packets of Services not through.
var dropping = []string{filterServices, filterExternal, filterProxyFW, filterForward}

// Dropped returns how many packets were not let through since the rule that did it is
// there: a chain that is written anew begins to count anew. It lists the few chains of
// the filter table, and costs what may be dropped in them.
func (b *Backend) Dropped(ctx context.Context) ([]service.Dropped, error) {
	var out []service.Dropped
	for _, container := range dropping {
		rules, err := b.options.Tool.Counted(ctx, tableOf(container), chainOf(container))
		if err != nil {
			return nil, fmt.Errorf("iptables: dropped: %w", err)
		}
		for _, rule := range rules {
			if d, is := droppedBy(container, rule); is {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// droppedBy reads a rule with its counters, as "iptables -S -v" writes it; false for one
// that lets packets through.
func droppedBy(container, rule string) (d service.Dropped, is bool) {
	words := strings.Fields(rule)
	target := ""
	for i := 0; i+1 < len(words); i++ {
		value := words[i+1]
		var err error
		switch words[i] {
		case "-d":
			var p netip.Prefix
			p, err = netip.ParsePrefix(value)
			d.Addr = p.Addr()
		case "-p":
			d.Protocol = service.Protocol(value)
		case "--dport":
			var n uint64
			n, err = strconv.ParseUint(value, 10, 16)
			d.Port = uint16(n)
		case "-c":
			d.Packets, err = strconv.ParseUint(value, 10, 64)
		case "-j":
			target = value
		}
		if err != nil {
			return service.Dropped{}, false
		}
	}
	switch {
	case target != "REJECT" && target != "DROP":
		return d, false
	case container == filterForward:
		d.Reason = service.DropInvalid
		return d, true
	case container == filterProxyFW:
		d.Reason = service.DropSourceRange
	case target == "DROP", strings.Contains(rule, ` has no local endpoints"`):
		d.Reason = service.DropNoLocalEndpoints
	default:
		d.Reason = service.DropNoEndpoints
	}
	return d, d.Port != 0
}
