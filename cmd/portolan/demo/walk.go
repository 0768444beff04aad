package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"portolan/lab"
	"portolan/trace/explain"
)

// Walk is one packet followed through a lab.
type Walk struct {
	From  *lab.Host
	Nodes []*lab.Host
	Hosts []*lab.Host // all others
	Proto string      // "tcp" or "udp"
	To    netip.AddrPort
	// Tries is how many packets are sent, at most, until one passes two nodes.
	Tries int
	// Trace asks the tracer in a node what it does with a new connection that
	// comes in by an interface, or from the node itself when that is empty.
	Trace func(ctx context.Context, node *lab.Host, in, proto string, src netip.Addr, dst netip.AddrPort) (explain.Answer, error)
}

// linger is how long packets are waited for that are still on their way, and how
// long the kernel is given to begin to stamp packets with the time, which it does
// in a work queue.
const linger = 30 * time.Millisecond

// Show sends the packet and prints where it came by, with addresses before and
// after, next to what the tracer says that each node does. The error is
// ErrUnexpected when nobody answered.
func (w Walk) Show(ctx context.Context, out io.Writer) error {
	seen, outcome, err := w.send()
	for i := 1; err == nil && i < w.Tries && !w.passesTwo(seen) && ctx.Err() == nil; i++ {
		seen, outcome, err = w.send()
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "One packet from %s to %s %v, as the interfaces saw it (* is what it met):\n", w.From.Name, w.Proto, w.To)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if w.isNode(w.From.Name) {
		fmt.Fprintf(table, "\t\t\t  %s\n", w.predict(ctx, w.From, "", lab.Packet{Proto: w.Proto, Src: netip.AddrPortFrom(w.From.Addr(w.To.Addr()), 0), Dst: w.To}, seen))
	}
	number, asked := 0, map[string]bool{}
	for i := 0; i < len(seen); i++ {
		s := seen[i]
		names := []string{s.Interface}
		for i+1 < len(seen) && sameMoment(s, seen[i+1]) { // a bridge and its port
			i++
			names = append(names, seen[i].Interface)
		}
		number++
		way := "in"
		if s.Out {
			way = "out"
		}
		fmt.Fprintf(table, "%3d  %s\t%s\t%s\t%s\n", number, s.Host, strings.Join(names, ", "), way, s.Packet.Text())
		if !s.Out && s.Packet.Inner == nil && w.isNode(s.Host) && !asked[s.Host] {
			asked[s.Host] = true
			fmt.Fprintf(table, "\t\t\t  %s\n", w.predict(ctx, w.node(s.Host), seen[i].Interface, s.Packet, seen[i+1:]))
		}
	}
	table.Flush()
	fmt.Fprintf(out, "     %v\n", outcome)
	if outcome.Verdict != lab.Answered {
		return ErrUnexpected
	}
	return nil
}

// passesTwo tells whether more than one node was on the way.
func (w Walk) passesTwo(seen []lab.Sighting) bool {
	nodes := map[string]bool{}
	for _, s := range seen {
		if w.isNode(s.Host) {
			nodes[s.Host] = true
		}
	}
	return len(nodes) > 1
}

func sameMoment(a, b lab.Sighting) bool {
	return a.Host == b.Host && a.Out == b.Out && a.Packet.Text() == b.Packet.Text()
}

func (w Walk) isNode(name string) bool { return w.node(name) != nil }

func (w Walk) node(name string) *lab.Host {
	i := slices.IndexFunc(w.Nodes, func(h *lab.Host) bool { return h.Name == name })
	if i < 0 {
		return nil
	}
	return w.Nodes[i]
}

// send has the packet sent while all hosts listen, and returns its sightings in
// the order of time.
func (w Walk) send() ([]lab.Sighting, lab.Outcome, error) {
	var sniffers []*lab.Sniffer
	defer func() {
		for _, s := range sniffers {
			_ = s.Close() // what it heard is there
		}
	}()
	for _, h := range append(append([]*lab.Host{w.From}, w.Nodes...), w.Hosts...) {
		if h == w.From && len(sniffers) > 0 {
			continue
		}
		s, err := h.Sniff(nil)
		if err != nil {
			return nil, lab.Outcome{}, err
		}
		sniffers = append(sniffers, s)
	}
	time.Sleep(linger)
	token := rand.Text()
	outcome := w.talk(token)
	time.Sleep(linger)
	var seen []lab.Sighting
	for _, s := range sniffers {
		for _, one := range s.Heard() {
			if one.Interface != "lo" && w.isIt(one.Packet, token, outcome) {
				seen = append(seen, one)
			}
		}
	}
	slices.SortStableFunc(seen, func(a, b lab.Sighting) int { return a.At.Compare(b.At) })
	return seen, outcome, nil
}

// talk says the token to who answers.
func (w Walk) talk(token string) lab.Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := w.From.Open(ctx, lab.Call{Proto: w.Proto, To: w.To})
	if err != nil {
		return lab.OutcomeOf(err)
	}
	defer c.Close()
	if w.Proto == "tcp" {
		if o := c.Ask(patience); o.Verdict != lab.Answered {
			return o
		}
	}
	return c.Say(token, patience)
}

// isIt finds the packet by what it carries; one that nobody answered carries
// nothing and is found by where it goes.
func (w Walk) isIt(p lab.Packet, token string, o lab.Outcome) bool {
	if p.Inner != nil {
		return w.isIt(*p.Inner, token, o)
	}
	if bytes.Contains(p.Payload, []byte(token)) {
		return true
	}
	return o.Verdict != lab.Answered && p.Proto == w.Proto && p.Dst == w.To
}

// predict says what the tracer expects of a node, and whether the packet did so.
func (w Walk) predict(ctx context.Context, node *lab.Host, in string, p lab.Packet, after []lab.Sighting) string {
	a, err := w.Trace(ctx, node, in, p.Proto, p.Src.Addr(), p.Dst)
	if err != nil {
		return fmt.Sprintf("trace: %v", err)
	}
	var happened []string
	for _, s := range after {
		inner := s.Packet
		if inner.Inner != nil {
			inner = *inner.Inner
		}
		happened = append(happened, inner.Dst.String())
	}
	var ways []string
	met := false
	for _, o := range a.Outcomes {
		way := o.Verdict
		if o.Verdict == "forward" || o.Verdict == "input" || o.Verdict == "output" {
			way += " to " + o.Dst
			if o.Masquerade {
				way += " from " + o.Src
			}
		}
		if o.Share != "1" {
			way += " (" + o.Share + ")"
		}
		if slices.Contains(happened, o.Dst) || len(happened) == 0 && (o.Verdict == "drop" || o.Verdict == "reject") {
			way, met = way+" *", true
		}
		if !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	text := "trace says: " + strings.Join(ways, ", ")
	if !met {
		text += " - and that is not what happened"
	}
	if len(a.Outcomes) > 0 && a.Outcomes[0].Service != "" {
		text = "Service " + a.Outcomes[0].Service + ", " + text
	}
	return text
}
