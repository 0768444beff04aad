package iptables

import (
	"context"
	"errors"
	"fmt"

	"portolan/kernel/iptables"
)

// EnsureCounters makes the nfacct objects that rules count with, in the present
// network namespace, and tells which can be used. The error says why others
// cannot; Services work without them.
func EnsureCounters(ctx context.Context, tool *iptables.Tool) (Counters, error) {
	invalid, err1 := ensureCounter(ctx, tool, InvalidDroppedCounter)
	localhost, err2 := ensureCounter(ctx, tool, LocalhostAcceptedCounter)
	return Counters{InvalidDropped: invalid, LocalhostAccepted: localhost}, errors.Join(err1, err2)
}

func ensureCounter(ctx context.Context, tool *iptables.Tool, name string) (bool, error) {
	if err := iptables.EnsureCounter(name); err != nil {
		return false, err
	}
	ok, err := tool.Accepts(ctx, "-m nfacct --nfacct-name "+name)
	if err == nil && !ok {
		err = fmt.Errorf("iptables: counter %s: the kernel does not match with it", name)
	}
	return ok, err
}
