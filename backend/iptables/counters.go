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
	taken := countsAlready(ctx, tool)
	invalid, err1 := ensureCounter(ctx, tool, InvalidDroppedCounter, taken)
	localhost, err2 := ensureCounter(ctx, tool, LocalhostAcceptedCounter, taken)
	return Counters{InvalidDropped: invalid, LocalhostAccepted: localhost}, errors.Join(err1, err2)
}

// ensureCounter makes one object; taken tells that the kernel has a rule that
// counts with another.
func ensureCounter(ctx context.Context, tool *iptables.Tool, name string, taken bool) (bool, error) {
	if err := iptables.EnsureCounter(name); err != nil {
		return false, err
	}
	if taken {
		return true, nil
	}
	ok, err := tool.Accepts(ctx, "-m nfacct --nfacct-name "+name)
	if err == nil && !ok {
		err = fmt.Errorf("iptables: counter %s: the kernel does not match with it", name)
	}
	return ok, err
}

// countsAlready tells whether KUBE-FORWARD has the rule that counts INVALID
// packets: after a restart it does, and in the filter table it is found fast. A
// table that cannot be read is as good as one without.
func countsAlready(ctx context.Context, tool *iptables.Tool) bool {
	found := false
	for line, err := range tool.Save(ctx, "filter") {
		if err != nil {
			return false
		}
		found = found || strings.HasPrefix(line, "-A "+chainOf(filterForward)+" ") && strings.Contains(line, "--nfacct-name")
	}
	return found
}
