package nftables

import (
	"sync"
	"time"

	"portolan/dataplane"
	"portolan/kernel/nft"
	"portolan/service"
)

// Options say what one family's Backend writes.
type Options struct {
	Family service.Family
	// MasqueradeBit is the bit of the packet mark that asks for masquerade, 0
	// to 31; kube-proxy's default is 14.
	MasqueradeBit int
	// LiberalTCP leaves out the rule that drops INVALID packets; it is
	// net.netfilter.nf_conntrack_tcp_be_liberal at the start.
	LiberalTCP bool
	// Conn is where tables are written and read, and is used by this Backend
	// alone. Base, Render and PlanText work without.
	Conn *nft.Conn
	// Trouble hears of a removal that failed after Apply had returned. It is
	// tried again; may be nil.
	Trouble func(error)
	// First is shared by all Backends of a network namespace; nil where there is one.
	First *FirstWrites
	// Deaf hears why Changes cannot tell any more when somebody else changes our
	// table; may be nil.
	Deaf func(error)
}

// TableName is the name of our table in both families.
const TableName = "portolan"

// Backend is the agent's Backend for one family.
type Backend struct {
	options Options
	words   words
	table   nft.Table
	common  common

	// removeAfter is for how long what waits to be removed is gathered.
	removeAfter time.Duration
	// batchLimit and firstLimit are about how many changes go into one transaction.
	batchLimit, firstLimit int

	mu   sync.Mutex // guards Conn and what follows
	ids  numbers
	late removals
	// reader is used again and again, and empty between two locks of mu.
	reader reader
	// replace: what is there cannot be changed into what is wanted, so the next look
	// takes the table for empty. After such a look, rebuild: the plan replaces it in one
	// transaction.
	replace, rebuild bool
	misfits          int  // times in a row that the kernel would not remove what was just seen
	fresh            bool // nothing was written since the last observation
	// doubtful: clients may be remembered whose endpoint is gone; see strays.
	doubtful bool
	scoped   map[string]*entry     // frontends with affinity that the look then saw
	notices  chan dataplane.Notice // of Changes, nil before
	deaf     *deafness             // nil unless Changes waits for the first write
}

// New returns a Backend. It touches nothing.
func New(o Options) *Backend {
	if o.First == nil {
		o.First = &FirstWrites{}
	}
	family := nft.IPv4
	if o.Family == service.IPv6 {
		family = nft.IPv6
	}
	b := &Backend{
		options: o,
		words:   wordsOf(family, o.MasqueradeBit),
		table:   nft.Table{Family: family, Name: TableName},
		ids:     newNumbers(),
		late:    newRemovals(),

		removeAfter: removeAfter,
		batchLimit:  batchLimit,
		firstLimit:  firstLimit,
		doubtful:    true,
	}
	b.reader.b = b
	return b
}
