package netfilter

import "net/netip"

// Listener is a socket that waits for connections, or for datagrams.
type Listener struct {
	Proto   uint8
	Addr    netip.Addr // invalid: every address of both families
	Port    uint16
	Process string // "" when not known
}

// ConntrackCounts are counters of connection tracking since the host came up,
// summed over processors.
type ConntrackCounts struct {
	InsertFailed, Drop, EarlyDrop uint64
}
