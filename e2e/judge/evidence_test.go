package judge

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"portolan/netfilter"
	"portolan/trace"
)

// evidence is what was seen of one probe.
type evidence struct {
	events    []event
	left      []frame    // it left the judged node, by an interface other than lo
	arrived   []frame    // it came to the host it is addressed to
	delivered []sighting // a socket of the judged node got it
	refused   []frame    // an error or a reset about it came back
}

// ears is the time without a packet after which all are taken to have arrived. The
// kernel hands packets between namespaces within microseconds; what takes longer is
// a busy machine, so a difference is looked at again after a longer silence.
const (
	ears    = 15 // ms
	allEars = 400
)

// listen collects what is seen until nothing is for the given time.
func (w *world) listen(book map[uint32]*evidence, quiet int) error {
	of := func(id uint32) *evidence {
		e := book[id]
		if e == nil {
			e = &evidence{}
			book[id] = e
		}
		return e
	}
	var watched []unix.PollFd
	for _, s := range w.stations {
		watched = append(watched, unix.PollFd{Fd: int32(s.packet), Events: unix.POLLIN})
	}
	for {
		some, err := w.trace.drain(func(e event) {
			e.at = w.events
			w.events++
			if e.seen.role == itself {
				of(e.seen.id).events = append(of(e.seen.id).events, e)
			} else {
				w.others = append(w.others, e)
			}
		})
		if err != nil {
			return err
		}
		for _, s := range w.stations {
			more, err := s.drain(func(f frame) { of(f.id).add(f, w) })
			if err != nil {
				return err
			}
			some = some || more
		}
		for _, server := range w.servers {
			more, err := server.drain(func(got sighting) { of(got.id).delivered = append(of(got.id).delivered, got) })
			if err != nil {
				return err
			}
			some = some || more
		}
		if some {
			continue
		}
		if n, err := unix.Poll(watched, quiet); n == 0 && err == nil {
			return nil
		}
	}
}

// add books a frame.
func (e *evidence) add(f frame, w *world) {
	lo := f.at == judged && w.devices[f.dev] == "lo"
	switch {
	case f.role == itself && f.at == judged && f.out && !lo:
		e.left = append(e.left, f)
	case f.role == itself && f.at != judged && !f.out && f.here:
		e.arrived = append(e.arrived, f)
	case f.role == refuse && !f.out && (lo || f.at != judged):
		e.refused = append(e.refused, f)
	}
}

// fact is what became of a probe, put together from what was seen.
type fact struct {
	verdict  trace.Verdict
	src, dst netip.Addr // of the packet as it left or was delivered; invalid if not seen
	sport    uint16
	dport    uint16
	who      []string // hosts that got it
	unheard  bool     // a rule rejects it, but the error did not come to the sender
}

func (f fact) String() string {
	text := f.verdict.String()
	if f.dst.IsValid() {
		text += fmt.Sprintf(" %v > %v", netip.AddrPortFrom(f.src, f.sport), netip.AddrPortFrom(f.dst, f.dport))
	}
	if len(f.who) > 0 {
		text += " at " + strings.Join(f.who, ",")
	}
	return text
}

// fact decides. Only what the packet did counts, but for one case: when no error
// comes back, the rule trace tells whether a rule rejected the packet all the same,
// since foreign rules and routes may stop the error, too.
func (e *evidence) fact(p probe, r ruleset, way []moment) fact {
	var out fact
	see := func(s sighting) { out.src, out.dst, out.sport, out.dport = s.src, s.dst, s.sport, s.dport }
	for _, f := range e.arrived {
		out.who = append(out.who, f.at)
	}
	switch {
	case len(e.left) > 0:
		see(e.left[len(e.left)-1].sighting)
		if out.verdict = trace.Forwarded; p.from == judged {
			out.verdict = trace.Output
		}
	case len(e.delivered) > 0:
		out.verdict = trace.Input
		got := e.delivered[len(e.delivered)-1]
		if !got.dst.IsValid() && len(way) > 0 { // IPv6, see server
			got.dst = way[len(way)-1].event.seen.dst
		}
		see(got)
	case len(e.refused) > 0 && !e.refused[0].expired():
		out.verdict = trace.Rejected
	case len(e.refused) == 0 && r.refusing(netfilter.FamilyOf(p.dst), way):
		out.verdict, out.unheard = trace.Rejected, true
	default:
		out.verdict = trace.Dropped
	}
	return out
}

// expired tells whether an error is about the TTL.
func (f frame) expired() bool { return f.kind == 11 && f.proto == 1 || f.kind == 3 && f.proto == 58 }
