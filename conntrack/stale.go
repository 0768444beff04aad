package conntrack

import "portolan/kernel/conntrack"

// Reason says why a flow leads nowhere. The zero value: it does lead somewhere,
// or it is not ours to judge.
type Reason uint8

// The reasons.
const (
	Leads        Reason = iota
	Untranslated        // it was there before the rules that would have translated it
	NotServing          // its endpoint serves no more
	NoService           // the Service that had its address is gone
	Vanished            // it is established, and its endpoint is gone: only with Options.TCPReset, or SCTP
)

func (r Reason) String() string {
	return [...]string{"leads somewhere", "not translated", "endpoint does not serve", "no such Service", "endpoint is gone"}[r]
}

// Judge tells whether a flow leads nowhere.
//
// UDP has no end that its client would notice, so all that matters is whether the
// endpoint serves. A connection of TCP or SCTP that is not established yet is
// treated alike: its client tries again, and is led right. An established one
// stays as long as its endpoint exists in any state, and one of TCP for ever
// unless tcpReset: then the next packet of its client reaches a live endpoint,
// which answers with a reset.
func (x *Index) Judge(f conntrack.Flow, nodePorts NodePorts, tcpReset bool) Reason {
	if f.Zone != 0 && !f.Translated() {
		return Leads // seen by a neighbour (Open vSwitch) ahead of us, which has its own table
	}
	p := x.Find(f, nodePorts)
	if p == nil {
		return x.judgeGone(f)
	}
	at := p.state(f.Reply.Src)
	switch {
	case at == serves:
		return Leads
	case established(f):
		if at == absent && f.Translated() && (f.Proto == conntrack.SCTP || tcpReset && f.State == conntrack.TCPEstablished) {
			return Vanished
		}
		return Leads
	case !f.Translated():
		return Untranslated
	}
	return NotServing
}

// judgeGone is about a flow to where nobody answers. It is ours only if it leads
// to an endpoint of the Service that had the address.
func (x *Index) judgeGone(f conntrack.Flow) Reason {
	p := x.before(f)
	if p == nil || !f.Translated() || p.state(f.Reply.Src) == absent || established(f) {
		return Leads
	}
	return NoService
}

// established tells whether a flow is one whose ends have agreed on it.
func established(f conntrack.Flow) bool {
	return f.Proto != conntrack.UDP && f.Status&conntrack.SeenReply != 0
}
