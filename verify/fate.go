package verify

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"portolan/netfilter"
	"portolan/service"
	"portolan/trace"
)

// fate is what becomes of a packet, without how that comes about: what two hosts have
// in common if they treat it alike.
type fate struct {
	ends      []end // sorted
	remembers bool  // clients go again to where they went
	certain   bool
}

// end is one place where connections end.
type end struct {
	what   ending
	to     netip.AddrPort // of answered ones
	hidden bool           // the endpoint sees an address of the node
	share  *big.Rat
}

// ending is how connections end.
type ending uint8

const (
	untold ending = iota
	answered
	unanswered   // an endpoint gets the packet, and its answer is lost
	untranslated // no rule of a Service does anything
	hostItself   // untranslated, and delivered on the host
	dropped
	rejected
	looping
)

var endingTexts = [...]string{"cannot be told", "", "the answer is lost", "goes on untranslated", "the node itself, where nobody listens for it", "drop", "reject", "loop"}

// fateOf sums up an answer.
func (w *world) fateOf(c *call) fate {
	f := fate{certain: c.answer.Certain()}
	add := func(e end) {
		i := slices.IndexFunc(f.ends, func(x end) bool { return x.what == e.what && x.to == e.to && x.hidden == e.hidden })
		if i < 0 {
			f.ends = append(f.ends, e)
			return
		}
		f.ends[i].share = new(big.Rat).Add(f.ends[i].share, e.share)
	}
	for i := range c.answer.Outcomes {
		o := &c.answer.Outcomes[i]
		if o.Share.Sign() == 0 {
			f.remembers = f.remembers || len(o.Conditions) > 0
			continue
		}
		add(w.endOf(c, o))
	}
	slices.SortFunc(f.ends, func(a, b end) int {
		if a.what != b.what {
			return int(a.what) - int(b.what)
		}
		return a.to.Compare(b.to)
	})
	return f
}

// endOf is where one outcome of a trace leaves the caller: a packet that reached an
// endpoint is answered only if the answer finds its way back.
func (w *world) endOf(c *call, o *trace.Outcome) end {
	e := end{share: o.Share}
	switch o.Verdict {
	case trace.Unknown:
		return e
	case trace.Dropped:
		e.what = dropped
		return e
	case trace.Rejected:
		e.what = rejected
		return e
	case trace.Loop:
		e.what = looping
		return e
	}
	local, _ := w.fib.Local(o.Dst)
	switch {
	case o.DNAT:
	case local:
		e.what = hostItself
		return e
	default:
		e.what = untranslated
		return e
	}
	e.what, e.to = answered, netip.AddrPortFrom(o.Dst, o.DstPort)
	// The address that a process of the node calls from is one of the node's anyway.
	e.hidden = c.client.class != service.FromHost && !local && (o.Masquerade && o.Src != c.flow.Src || w.isOwnSource(o))
	if d, ok := w.judgeAnswer(c, o); !ok && d.code != CannotTell {
		e.what = unanswered
	}
	return e
}

// listens tells whether the proxy answers a call itself, in user space.
func (w *world) listens(c *call) bool {
	proto := c.flow.Proto
	return c.target.fe.Kind == service.NodePort && slices.Contains(w.in.Loopback, c.target.to.Addr()) && (proto == netfilter.TCP || proto == netfilter.UDP) &&
		!slices.ContainsFunc(c.answer.Outcomes, func(o trace.Outcome) bool { return o.DNAT || o.Verdict != trace.Input })
}

// fateOfListening is that of calls which the proxy answers itself.
func (w *world) fateOfListening(c *call) fate {
	f := fate{certain: true}
	due := w.shares(c)
	for i, e := range c.want.Endpoints {
		x := end{what: answered, to: e.Addr, share: big.NewRat(1, int64(len(c.want.Endpoints)))}
		if due != nil {
			x.share = due[i]
		}
		f.ends = append(f.ends, x)
	}
	if c.want.Verdict != service.Forward {
		f.ends = []end{{what: rejected, share: big.NewRat(1, 1)}}
	}
	slices.SortFunc(f.ends, func(a, b end) int { return a.to.Compare(b.to) })
	return f
}

func (f fate) same(o fate) bool {
	return f.remembers == o.remembers && slices.EqualFunc(f.ends, o.ends, func(a, b end) bool {
		return a.what == b.what && a.to == b.to && a.hidden == b.hidden && a.share.Cmp(b.share) == 0
	})
}

// String lists the ends, with their shares where these are not equal.
func (f fate) String() string {
	even := !slices.ContainsFunc(f.ends, func(e end) bool { return e.share.Cmp(f.ends[0].share) != 0 })
	var list, notes []string
	hidden := 0
	for _, e := range f.ends {
		text := endingTexts[e.what]
		switch e.what {
		case answered:
			text = e.to.String()
		case unanswered:
			text = e.to.String() + ", whose answer is lost"
		}
		if e.hidden {
			hidden++
		}
		if !even {
			text += " (" + e.share.RatString() + ")"
		}
		list = append(list, text)
	}
	switch {
	case hidden > 0 && hidden == len(f.ends):
		notes = append(notes, "masqueraded")
	case hidden > 0:
		notes = append(notes, fmt.Sprintf("%d of them masqueraded", hidden))
	}
	if f.remembers {
		notes = append(notes, "clients are remembered")
	}
	if !f.certain {
		notes = append(notes, "not certain")
	}
	return strings.Join(append([]string{some(list)}, notes...), "; ")
}
