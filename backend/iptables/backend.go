package iptables

import (
	"fmt"
	"sync/atomic"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/service"
)

// Options say what one family's Backend writes.
type Options struct {
	Family service.Family
	Layout Layout
	// MasqueradeBit is the bit of the packet mark that asks for masquerade, 0
	// to 31; kube-proxy's default is 14.
	MasqueradeBit int
	// RandomFully adds --random-fully to MASQUERADE; see iptables.Tool.
	RandomFully bool
	Nfacct      Counters
	// LiberalTCP leaves out the rule that drops INVALID packets; it is
	// net.netfilter.nf_conntrack_tcp_be_liberal at the start.
	LiberalTCP bool
	// Tool runs the programs. Base, Render and Text work without.
	Tool *iptables.Tool
	// Watch is shared by the Backends of both families, so that neither takes
	// the writes of the other for somebody else's. Without it, Changes opens one
	// for this family alone.
	Watch *iptables.Watch
	// Trouble hears why Changes cannot tell when somebody else changed a table,
	// when that begins; may be nil.
	Trouble func(error)
}

// Counters are the nfacct objects that exist. Rules that count with one that
// does not exist would be refused.
type Counters struct {
	InvalidDropped    bool // ct_state_invalid_dropped_pkts
	LocalhostAccepted bool // localhost_nps_accepted_pkts
}

// Names of the nfacct objects.
const (
	InvalidDroppedCounter    = "ct_state_invalid_dropped_pkts"
	LocalhostAcceptedCounter = "localhost_nps_accepted_pkts"
)

// Backend is the agent's Backend for one family.
type Backend struct {
	options Options
	mark    string // as written: value and mask are the same 8 digits
	keys    map[string]map[string]dataplane.Key
	ways    map[string]*[256]way // of the trees of addresses, by shared chain

	ahead iptables.Ahead                 // of the first look
	own   atomic.Pointer[iptables.Watch] // while Changes works without Options.Watch
}

// New returns a Backend. It touches nothing.
func New(o Options) *Backend {
	b := &Backend{options: o, mark: fmt.Sprintf("0x%08x", uint32(1)<<o.MasqueradeBit)}
	b.keys = sharedKeys()
	if o.Layout == Compact {
		b.ways = map[string]*[256]way{}
		for _, root := range []string{natServices, natHairpin, filterServices, filterExternal, filterProxyFW} {
			b.ways[root] = newWays(root, o.Family)
		}
	}
	return b
}
