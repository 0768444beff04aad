package conntrack

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// Listener hears of the connections that begin in the network namespace in which it
// was made.
type Listener struct{ ear *netlink.Listener }

// Listen begins to hear. The kernel tells of connections unless
// net.netfilter.nf_conntrack_events is 0.
func Listen() (*Listener, error) {
	ear, err := netlink.Listen(unix.NFNLGRP_CONNTRACK_NEW, nil)
	if err != nil {
		return nil, fmt.Errorf("conntrack: new connections: %w", err)
	}
	return &Listener{ear}, nil
}

// ErrLost: more connections began than could be heard of.
var ErrLost = errors.New("conntrack: some new connections were not heard of")

// Hear calls each with the connections that begin, one after the other, until ctx
// ends; then the Listener is closed. An error ErrLost does not end it.
func (l *Listener) Hear(ctx context.Context, each func(Flow, error)) error {
	for {
		datagram, complete, err := l.ear.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("conntrack: new connections: %w", err)
		case !complete:
			each(Flow{}, ErrLost)
		}
		for m := range netlink.Messages(datagram) {
			if flow, ok := parseFlow(m); ok {
				each(flow, nil)
			}
		}
	}
}
