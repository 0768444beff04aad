package trace

import (
	"fmt"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// target carries out a rule's target other than jumps and RETURN. ended is set
// when the walk of the table is over although fate is goOn.
func (r *run) target(at ruleAt) fate {
	p := &r.pkt
	switch t := at.rule.Target.(type) {
	case nil:
		r.step(at, ActCount, "", "")
	case netfilter.Accept:
		r.step(at, ActAccept, "", "")
		r.ended = true
	case netfilter.Drop:
		r.step(at, ActDrop, "", "")
		r.end(Dropped, r.ruleReason("drops it", at))
		return stop
	case netfilter.Reject:
		r.step(at, ActReject, t.With, rejectNote(t.With))
		r.end(Rejected, r.ruleReason("rejects it with "+t.With, at))
		return stop
	case netfilter.Translate:
		return r.translate(at, t)
	case netfilter.SetMark:
		mark := t.Apply(p.mark)
		r.step(at, ActMark, fmt.Sprintf("0x%x", mark), markNote(t))
		p.mark = mark
	case netfilter.SetConnMark:
		r.connMark(at, t)
	case netfilter.CT:
		if t.NoTrack && r.ct.state == 0 {
			r.ct.state = netfilter.StateUntracked
		}
		r.step(at, ActContinue, "CT", map[bool]string{true: "the packet is not tracked: no NAT"}[t.NoTrack])
	case netfilter.TProxy:
		p.mark = p.mark&^t.Mask ^ t.Value
		r.step(at, ActTProxy, endpoint(t.Addr, t.Port), "")
		r.assumed.add("a local socket listens for TPROXY")
		r.ended = true
	case netfilter.NFQueue:
		return r.queue(at, t)
	case netfilter.Log:
		r.step(at, ActContinue, t.Kind, "")
	case netfilter.Note:
		r.step(at, ActContinue, t.Name, "")
		if t.Name == "TTL" || t.Name == "HL" {
			p.ttl = newTTL(t.Text, p.ttl)
		}
	case netfilter.SetChange:
		r.step(at, ActContinue, "SET", "")
	case netfilter.Unknown:
		return r.unknownTarget(at, t)
	default:
		panic(fmt.Sprintf("trace: no meaning for target %T", t))
	}
	return goOn
}

// newTTL is what the options of TTL (--ttl-set, --ttl-inc, --ttl-dec) and HL make of
// a packet's TTL; it stays between 0 and 255.
func newTTL(options string, ttl int) int {
	op, number, _ := strings.Cut(strings.TrimSpace(options), " ")
	n, err := strconv.Atoi(strings.TrimSpace(number))
	switch {
	case err != nil:
	case strings.HasSuffix(op, "-set"):
		ttl = n
	case strings.HasSuffix(op, "-inc"):
		ttl += n
	case strings.HasSuffix(op, "-dec"):
		ttl -= n
	}
	return min(max(ttl, 0), 255)
}

// ruleReason names a deciding rule: table, chain, number, and its comment.
func (r *run) ruleReason(does string, at ruleAt) string {
	s := fmt.Sprintf("rule %d of %s %s %s", at.number, r.table.Name, at.chain.Name, does)
	if text := at.rule.Comment(); text != "" {
		s += ": " + text
	}
	return s
}

// rejectNote says what an answer means to who gets it.
func rejectNote(with string) string {
	switch {
	case strings.HasSuffix(with, "port-unreachable"):
		return "the client sees: connection refused"
	case with == "tcp-reset":
		return "the client sees: connection reset"
	}
	return "the client gets an ICMP error"
}

// markNote says in words what an xmark does, which the saved form hides.
func markNote(m netfilter.SetMark) string {
	switch {
	case m.Mask == 0xffffffff:
		return fmt.Sprintf("sets the mark to 0x%x", m.Value)
	case m.Mask == 0:
		return fmt.Sprintf("toggles bit 0x%x: set before, it is cleared now, so that the packet is not masqueraded again when it passes POSTROUTING once more", m.Value)
	case m.Mask == m.Value:
		return fmt.Sprintf("sets bit 0x%x", m.Value)
	case m.Value == 0:
		return fmt.Sprintf("clears bits 0x%x", m.Mask)
	}
	return fmt.Sprintf("mark = (mark & ~0x%x) xor 0x%x", m.Mask, m.Value)
}

// connMark is CONNMARK: xt_connmark of Linux.
func (r *run) connMark(at ruleAt, t netfilter.SetConnMark) {
	if !r.tracked() {
		r.step(at, ActContinue, "CONNMARK", "the packet has no conntrack entry")
		return
	}
	packet, connection := r.pkt.mark, r.ct.mark
	switch t.Op {
	case netfilter.ConnMarkSet:
		connection = connection&^t.CTMask ^ t.Value
	case netfilter.ConnMarkSave:
		connection = connection&^t.CTMask ^ packet&t.NFMask
	case netfilter.ConnMarkRestore:
		packet = packet&^t.NFMask ^ connection&t.CTMask
	}
	r.step(at, ActContinue, "CONNMARK", fmt.Sprintf("connection mark 0x%x, packet mark 0x%x", connection, packet))
	r.pkt.mark, r.ct.mark = packet, connection
}

// queue: a program decides, unless none listens and bypass accepts.
func (r *run) queue(at ruleAt, t netfilter.NFQueue) fate {
	r.step(at, ActQueue, "NFQUEUE", "a program decides")
	if t.Bypass && !r.oracle.unsure("queue", "rule "+fmt.Sprint(at.number)+" of "+at.chain.Name+": whether a program listens on the queue is not known") {
		r.ended = true
		return goOn
	}
	r.end(Unknown, "a program that listens on a queue decides")
	return stop
}

// unknownTarget may do anything: one branch goes on, the other ends.
func (r *run) unknownTarget(at ruleAt, t netfilter.Unknown) fate {
	why := "the target " + strings.TrimSpace(t.Module+" "+strings.TrimPrefix(t.Text, t.Module)) + " is not understood"
	if t.Why != "" {
		why += " (" + t.Why + ")"
	}
	r.step(at, ActUnknown, t.Module, why)
	if r.oracle.unsure("", r.place(at)+": "+why) {
		return goOn
	}
	r.end(Unknown, why)
	return stop
}
