package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"portolan/lab"
)

// connect measures how long the client's connect takes to the first and to the
// last Service, and to the one with the most endpoints, each against one to a pod
// itself, in turn: what the machine does besides meets them all.
func (m *measurement) connect(ctx context.Context) error {
	first, last, biggest := -1, -1, -1
	for i, it := range m.items {
		if !answers(it) || it.service.Spec.SessionAffinity == "ClientIP" {
			continue
		}
		if first < 0 {
			first = i
		}
		last = i
		if biggest < 0 || endpointsIn(it) > endpointsIn(m.items[biggest]) {
			biggest = i
		}
	}
	pod, err := netip.ParseAddr(m.items[first].slices[0].Endpoints[0].Addresses[0])
	if err != nil {
		return fmt.Errorf("bench: endpoint: %w", err)
	}
	targets := []netip.AddrPort{netip.AddrPortFrom(pod, openPort), frontend(m.items[first]), frontend(m.items[last]), frontend(m.items[biggest])}
	took := make([][]time.Duration, len(targets))
	for range m.connects {
		for i, to := range targets {
			began := time.Now()
			c, err := m.lab.Client.Open(ctx, lab.Call{Proto: "tcp", To: to, Timeout: time.Second})
			if err != nil {
				return fmt.Errorf("bench: connect to %v: %w", to, err)
			}
			took[i] = append(took[i], time.Since(began))
			_ = c.Close() // it was open, which is all that counts
		}
	}
	for _, t := range took {
		slices.Sort(t)
	}
	at := func(i int, share float64) float64 { return float64(took[i][int(share*float64(len(took[i])-1))]) }
	for i, rows := range [][2]row{{connectFirst10, connectFirst}, {connectLast10, connectLast}, {connectBig10, connectBig}} {
		m.got.add(rows[0], at(i+1, 0.1)/at(0, 0.1))
		m.got.add(rows[1], at(i+1, 0.5)/at(0, 0.5))
	}
	progress("%v: connect to a pod %v at the median; biggest Service has %d endpoints", m.product, took[0][len(took[0])/2], endpointsIn(m.items[biggest]))
	return nil
}

func endpointsIn(it item) (n int) {
	for _, s := range it.slices {
		n += len(s.Endpoints)
	}
	return n
}
