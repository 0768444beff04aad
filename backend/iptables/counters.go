package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"portolan/kernel/iptables"
)

// EnsureCounters makes the nfacct objects that rules count with, in the present
// network namespace, and tells which can be used. The error says why others
// cannot; Services work without them. It writes to the tables only where no rule
// of a proxy counts yet, to find out whether the kernel takes such rules.
func EnsureCounters(ctx context.Context, tool *iptables.Tool) (Counters, error) {
	names := []string{InvalidDroppedCounter, LocalhostAcceptedCounter}
	var errs []error
	var made []string
	var trials []iptables.Trial
	for _, name := range names {
		if err := iptables.EnsureCounter(name); err != nil {
			errs = append(errs, err)
			continue
		}
		made = append(made, name)
		trials = append(trials, iptables.Trial{Table: "filter", Rule: "-m nfacct --nfacct-name " + name})
	}
	usable := map[string]bool{}
	if len(made) > 0 && countsAlready(ctx, tool) {
		for _, name := range made {
			usable[name] = true
		}
	} else if len(made) > 0 {
		accepted, err := tool.Accepts(ctx, trials...)
		errs = append(errs, err)
		for i, name := range made {
			if usable[name] = accepted[i]; !accepted[i] && err == nil {
				errs = append(errs, fmt.Errorf("iptables: counter %s: the kernel does not match with it", name))
			}
		}
	}
	return Counters{InvalidDropped: usable[InvalidDroppedCounter], LocalhostAccepted: usable[LocalhostAcceptedCounter]}, errors.Join(errs...)
}

// countsAlready tells whether KUBE-FORWARD has the rule that counts INVALID
// packets: after a restart it does, and in the filter table it is found fast. A
// table that cannot be read is as good as one without.
func countsAlready(ctx context.Context, tool *iptables.Tool) bool {
	for line, err := range tool.SaveAll(ctx, tool.Filled("filter")...) {
		if err != nil {
			return false
		}
		if strings.HasPrefix(line, "-A "+chainOf(filterForward)+" ") && strings.Contains(line, "--nfacct-name") {
			return true
		}
	}
	return false
}
