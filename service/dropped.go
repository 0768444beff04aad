package service

import "net/netip"

// DropReason says why packets of new connections do not get through.
type DropReason string

// The reasons. Only the last has nothing to do with a Service: packets that belong to
// no connection that conntrack knows.
const (
	DropNoEndpoints      DropReason = "no_endpoints"       // refused: no endpoint anywhere is ready
	DropNoLocalEndpoints DropReason = "no_local_endpoints" // policy Local, and endpoints elsewhere only
	DropSourceRange      DropReason = "source_range"       // the client is outside of the ranges
	DropInvalid          DropReason = "invalid"
)

// Dropped is how many packets the kernel did not let through to one frontend, since it
// began to count. A lesser number than before means that it began anew.
type Dropped struct {
	Addr     netip.Addr // that the packets went to: with a NodePort one of the node, or not valid
	Protocol Protocol
	Port     uint16
	Reason   DropReason
	Packets  uint64
}
