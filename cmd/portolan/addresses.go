package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"portolan/source/kube"
)

// watchAddresses tells when the addresses of this node's interfaces change,
// where NodePorts depend on them. When the kernel's messages are lost, it
// subscribes anew and looks again.
func watchAddresses(ctx context.Context, s kube.Settings, log *slog.Logger) <-chan func(*kube.Settings) {
	if len(s.NodePorts.Prefixes) == 0 && !s.NodePortsPrimary {
		return nil
	}
	out := make(chan func(*kube.Settings))
	go func() {
		last := s.NodePorts.Local
		look := func() {
			now, err := localAddresses()
			if err != nil || slices.Equal(now, last) {
				return
			}
			last = now
			select {
			case out <- func(s *kube.Settings) { s.NodePorts.Local = now }:
			case <-ctx.Done():
			}
		}
		for ctx.Err() == nil {
			updates := make(chan netlink.AddrUpdate)
			if err := netlink.AddrSubscribe(updates, ctx.Done()); err != nil {
				log.Error("addresses of this node are not watched", "error", err)
			} else {
				look() // what changed before the subscription
				for range updates {
					look()
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(retryMin):
			}
		}
	}()
	return out
}

// localAddresses are the addresses of this host's interfaces.
func localAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of this host: %w", err)
	}
	var out []netip.Addr
	for _, a := range list {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, prefix.Addr())
		}
	}
	return out, nil
}
