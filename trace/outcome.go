package trace

import (
	"math/big"
	"net/netip"

	"portolan/netfilter"
)

// Verdict is what becomes of a packet.
type Verdict uint8

// The verdicts. Forwarded leaves through FORWARD (routed or bridged), Output
// was sent by a local process and leaves, Input is delivered to one.
const (
	Unknown Verdict = iota
	Forwarded
	Input
	Output
	Dropped
	Rejected
	Loop
)

var verdictNames = [...]string{"unknown", "forward", "input", "output", "drop", "reject", "loop"}

func (v Verdict) String() string { return verdictNames[v] }

// Lost reports whether the packet does not arrive anywhere.
func (v Verdict) Lost() bool { return v == Dropped || v == Rejected || v == Loop }

// Cause is what decided the verdict.
type Cause uint8

// The causes. ByRules is also that of packets that nothing stopped.
const (
	ByRules      Cause = iota
	ByForwarding       // the host does not forward
	ByLoopback         // an address of 127.0.0.0/8 or ::1 where none may be
	BySource           // rp_filter, or an own address from outside
	ByRoute            // no route, or one that refuses
)

// Action is what a matched rule does.
type Action uint8

// The actions of steps.
const (
	ActCount Action = iota // no target
	ActJump
	ActGoto
	ActReturn
	ActAccept
	ActDrop
	ActReject
	ActDNAT
	ActSNAT
	ActMasquerade
	ActRedirect
	ActNetmap
	ActMark
	ActContinue
	ActTProxy
	ActQueue
	ActPolicy
	ActUnknown
)

var actionNames = [...]string{"count", "jump", "goto", "return", "accept", "drop", "reject", "dnat", "snat", "masquerade", "redirect", "netmap", "mark", "continue", "tproxy", "queue", "policy", "unknown"}

func (a Action) String() string { return actionNames[a] }

// Step is a rule that matched, or a built-in chain's policy that applied
// (Rule 0).
type Step struct {
	Hop     int // index into the outcome's hops
	Hook    netfilter.Hook
	Table   string
	Variant netfilter.Variant
	Chain   string
	Rule    int // from 1
	Text    string
	Action  Action
	Target  string // the chain, address, mark or policy that the action is about
	Note    string // in words, where the rule alone does not say it
	Comment string
	Element bool // the comment is that of a set's element
	Partly  bool // only the beginning of the rule applied
	// The packet as the rule saw it.
	Src, Dst netip.Addr
	DstPort  uint16
	Mark     uint32
}

// Hop is the passage through one hook: the packet as it enters, and the
// routing decision that led there.
type Hop struct {
	Hook     netfilter.Hook
	In, Out  string
	Src, Dst netip.Addr
	SrcPort  uint16
	DstPort  uint16
	Mark     uint32
	TTL      int
	Route    string // the decision before the hook, "" if there was none
}

// Outcome is one of the things that can happen to the packet.
type Outcome struct {
	Share   *big.Rat // exact probability
	Certain bool
	Doubts  []string // why it is not certain
	// Conditions under which a branch of share 0 is taken instead of the
	// others: a client that is remembered, for example.
	Conditions []string

	Verdict    Verdict
	Cause      Cause
	Src        netip.Addr // invalid when not known
	SrcPort    uint16     // 0 when not known
	Dst        netip.Addr
	DstPort    uint16
	Proto      uint8
	DNAT       bool
	Masquerade bool // the source is rewritten, by MASQUERADE or SNAT
	Mark       uint32
	Service    string
	Reason     string
	Hops       []Hop
	Steps      []Step
	Reply      *Reply

	Out string // interface it left by, "" if it did not, "?" if not known

	memory memory
	ct     conn
}

// Reply is what happens to the answer on its way back through this host.
type Reply struct {
	Verdict Verdict
	Passes  bool // whether it comes back through this host at all
	Src     netip.Addr
	SrcPort uint16
	Dst     netip.Addr
	DstPort uint16
	Reason  string
	Steps   []Step
}

// Answer is all that can happen to a flow. Shares sum to 1.
type Answer struct {
	Flow        Flow
	Entry       netfilter.Hook
	In          string
	Outcomes    []Outcome
	Assumptions []string
}

// Certain reports whether every outcome that has a share is certain.
func (a Answer) Certain() bool {
	for _, o := range a.Outcomes {
		if !o.Certain && o.Share.Sign() > 0 {
			return false
		}
	}
	return true
}
