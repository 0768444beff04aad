package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"portolan/backend/ipvs"
	"portolan/source/kube"
)

// watchAddresses tells when the addresses of this node's interfaces change, where
// something depends on them: then there are some at the start. When the kernel's messages
// are lost, it subscribes anew and looks again.
func watchAddresses(ctx context.Context, s kube.Settings, log *slog.Logger) <-chan func(*kube.Settings) {
	if s.NodePorts.Local == nil {
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
				for u := range updates {
					if !ofServices(u.LinkIndex) {
						look()
					}
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

// ofServices tells whether an interface holds addresses of Services. They are local,
// but not this node's, and come and go in great numbers.
func ofServices(index int) bool {
	i, err := net.InterfaceByIndex(index)
	return err == nil && i.Name == ipvs.DeviceName
}

// localAddresses are the addresses of this host's interfaces, without those of
// Services.
func localAddresses() ([]netip.Addr, error) {
	interfaces, err := net.Interfaces()
	var out []netip.Addr
	for _, i := range interfaces {
		if i.Name == ipvs.DeviceName {
			continue
		}
		list, failed := i.Addrs()
		err = errors.Join(err, failed)
		for _, a := range list {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				out = append(out, prefix.Addr())
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("addresses of this host: %w", err)
	}
	return out, nil
}
