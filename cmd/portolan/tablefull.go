package main

import (
	"context"
	"log/slog"
	"time"
)

// connectionsTracked are how many connections the kernel tracks, and how many it may.
func connectionsTracked() (entries, most int, err error) {
	if entries, err = host.Read(netfilterFile + "count"); err != nil {
		return 0, 0, err
	}
	most, err = host.Read(netfilterFile + "max")
	return entries, most, err
}

// Of a table that is fuller than crowded, people hear before packets of new
// connections are dropped; then again only after it was below relaxed.
const (
	crowded, relaxed = 0.95, 0.85
	tableLook        = 10 * time.Second
)

// fullness remembers whether people have heard of a full table.
type fullness struct{ told bool }

// note tells whether they are to hear of it now.
func (f *fullness) note(entries, most int) bool {
	if most <= 0 {
		return false
	}
	full := float64(entries) / float64(most)
	if f.told {
		f.told = full >= relaxed
		return false
	}
	f.told = full >= crowded
	return f.told
}

// watchTable warns when the table of connections fills up.
func watchTable(ctx context.Context, log *slog.Logger) error {
	ticks := time.NewTicker(tableLook)
	defer ticks.Stop()
	var f fullness
	for {
		if entries, most, err := connectionsTracked(); err == nil && f.note(entries, most) {
			log.Warn("the kernel's table of connections is nearly full; when it is, packets of new connections are dropped: see who makes so many with portolan top, or raise net.netfilter.nf_conntrack_max (conntrack.maxPerCore)",
				"tracked", entries, "most", most)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}
