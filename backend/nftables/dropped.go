package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"portolan/service"
)

// countedSeconds is how long it is known how many packets a frontend did not let
// through, after the last of them.
const countedSeconds = 3600

// count is the statement that counts what comes to a frontend. It has an element only
// for a frontend that somebody tried to reach; nothing of it depends on a Service.
func (w *words) count(set string) string {
	return "update @" + set + " { " + w.service + " timeout " + strconv.Itoa(countedSeconds) + "s counter }"
}

// Dropped returns how many packets were not let through since the table or the
// element is there. It reads what the kernel counted and costs what was dropped, not
// what could be.
func (b *Backend) Dropped(context.Context) ([]service.Dropped, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []service.Dropped
	for _, from := range []struct {
		set    string
		reason service.DropReason
	}{{refused, service.DropNoEndpoints}, {discarded, service.DropNoLocalEndpoints}, {barred, service.DropSourceRange}} {
		var err error
		if out, err = b.droppedOf(out, from.set, from.reason); err != nil {
			return nil, fmt.Errorf("nftables: dropped: %w", err)
		}
	}
	invalid, err := b.droppedInvalid()
	if err != nil {
		return nil, fmt.Errorf("nftables: dropped: %w", err)
	}
	return append(out, service.Dropped{Reason: service.DropInvalid, Packets: invalid}), nil
}

// droppedOf adds what one of the sets that count has; Counts may begin again, and then so
// does this.
func (b *Backend) droppedOf(out []service.Dropped, set string, reason service.DropReason) ([]service.Dropped, error) {
	start := len(out)
	err := b.options.Conn.Counts(b.table, set, func() { out = out[:start] }, func(key []byte, packets uint64) {
		d := service.Dropped{Reason: reason, Packets: packets}
		if b.words.frontendOf(key, &d) {
			out = append(out, d)
		}
	})
	if errors.Is(err, unix.ENOENT) { // the table is not there, or that of another layout
		err = nil
	}
	return out, err
}

// droppedInvalid reads the counter of the rule that drops what belongs to no
// connection; there is none with LiberalTCP.
func (b *Backend) droppedInvalid() (uint64, error) {
	packets, err := b.options.Conn.Packets(b.table, filterForward)
	if errors.Is(err, unix.ENOENT) || b.options.LiberalTCP || len(packets) == 0 {
		return 0, nil
	}
	return packets[0], err
}

// frontendOf reads a key of address, protocol and port.
func (w *words) frontendOf(key []byte, d *service.Dropped) bool {
	if len(key) != w.addrLen+8 {
		return false
	}
	d.Addr, _ = netip.AddrFromSlice(key[:w.addrLen]) // of the length that it has
	d.Protocol = service.Protocol(protocols[key[w.addrLen]])
	d.Port = uint16(key[w.addrLen+4])<<8 | uint16(key[w.addrLen+5])
	return d.Protocol != ""
}
