package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"portolan/bench/figures"
)

// connect measures connections of the client, one after the other: to a pod behind a node
// without rules, to one behind a node with a single rule, to one behind the node that is
// measured, and to the first, the last and the biggest Service. Targets take turns of a
// hundred connections: what the machine does besides meets them all.
func (m *measurement) connect(ctx context.Context) error {
	if m.connects == 0 {
		return nil
	}
	const turn = 100
	to := m.connectTargets()
	all := map[figures.Target]*connections{}
	for range max(1, m.connects/turn) {
		for _, target := range figures.Targets {
			if all[target] == nil {
				all[target] = &connections{}
			}
			err := m.lab.Client.Do(func() error { return all[target].make(ctx, to[target], turn) })
			if err != nil {
				return fmt.Errorf("bench: %v: connect to %s, %v: %w", m.product, target, to[target], err)
			}
		}
	}
	for target, c := range all {
		for _, v := range []struct {
			figure string
			value  float64
		}{
			{figures.ConnectP10, c.latency().Quantile(0.1)},
			{figures.ConnectMedian, c.latency().Median()},
			{figures.ConnectRate, float64(len(c.took)) / c.wall.Seconds()},
			{figures.ConnectCPU, microseconds(c.cpu) / float64(len(c.took))},
		} {
			m.got.Add(figures.Connect(v.figure, target), v.value)
		}
	}
	return nil
}

// connectTargets are the addresses behind the targets. Services with affinity are
// no target: they do more than one may expect of a Service.
func (m *measurement) connectTargets() map[figures.Target]netip.AddrPort {
	var first, last, biggest *item
	for i := range m.items {
		it := &m.items[i]
		if !answers(*it) || it.service.Spec.SessionAffinity == "ClientIP" {
			continue
		}
		if first == nil {
			first, biggest = it, it
		}
		if last = it; endpointsIn(*it) > endpointsIn(*biggest) {
			biggest = it
		}
	}
	pod := netip.MustParseAddr(first.slices[0].Endpoints[0].Addresses[0]) // we made it
	return map[figures.Target]netip.AddrPort{
		figures.Bare: m.bare, figures.Tracked: m.tracked, figures.Pod: netip.AddrPortFrom(pod, openPort),
		figures.First: frontend(*first), figures.Last: frontend(*last), figures.Biggest: frontend(*biggest),
	}
}

func endpointsIn(it item) (n int) {
	for _, s := range it.slices {
		n += len(s.Endpoints)
	}
	return n
}

// connections are what was measured of those to one target.
type connections struct {
	took []time.Duration
	wall time.Duration // of all together
	cpu  time.Duration // of the machine meanwhile
}

func (c *connections) latency() figures.Values {
	values := make([]float64, len(c.took))
	for i, d := range c.took {
		values[i] = microseconds(d)
	}
	return figures.Sorted(values)
}

// make opens so many connections from the current thread's network namespace, and
// hangs up at once.
func (c *connections) make(ctx context.Context, to netip.AddrPort, times int) error {
	used, err := busyTime()
	if err != nil {
		return err
	}
	began := time.Now()
	for done := 0; done < times; {
		if err := ctx.Err(); err != nil {
			return err
		}
		took, err := connectOnce(to)
		if errors.Is(err, unix.EINTR) {
			continue // Go's scheduler; how long it would have taken is not known
		}
		if err != nil {
			return err
		}
		c.took = append(c.took, took)
		done++
	}
	c.wall += time.Since(began)
	after, err := busyTime()
	c.cpu += after - used
	return err
}

// connectOnce connects with bare system calls, since what Go does around them takes
// as long as the kernel does, and ends the connection with a reset, which leaves no
// port behind that waits.
func connectOnce(to netip.AddrPort) (took time.Duration, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, err
	}
	// A lost packet is sent again after a second.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
