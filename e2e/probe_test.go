package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"portolan/lab"
)

// probe calls one address all the time, while Services change.
type probe struct {
	from, proto string
	to          netip.AddrPort

	host  *lab.Host
	ports *atomic.Uint32
	pods  []*lab.Pod
	mu    sync.Mutex
	// phases are the outcomes allowed so far, the present ones last. While a change
	// is on its way these are the old ones and the new ones.
	phases   [][]string
	old, new []string
	refuses  bool           // an address that comes or goes refuses for a moment
	sticky   bool           // of the new outcomes only one is met
	forced   bool           // the present phase is that of the new outcomes
	turned   bool           // a new outcome was seen that is no old one
	seen     map[string]int // in the present phase
	calls    int
	lost     int // answers
	err      error
}

func (p *probe) String() string { return fmt.Sprintf("%s %s %v", p.from, p.proto, p.to) }

// outcomes lists what a text like "answered a,b" or "refused" stands for. "sticky
// a,b" is one of these, always the same.
func outcomes(text string) (list []string, sticky bool) {
	verdict, pods, answered := strings.Cut(text, " ")
	if !answered {
		return []string{verdict}, false
	}
	for _, pod := range strings.Split(pods, ",") {
		list = append(list, "answered "+pod)
	}
	return list, verdict == "sticky"
}

func outcomeText(o lab.Outcome) string {
	if o.Verdict == lab.Answered {
		return o.Verdict.String() + " " + o.Pod
	}
	return o.Verdict.String()
}

// begin allows the outcomes of a change beside those of before.
func (p *probe) begin(want string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.old, p.turned = p.new, false
	p.new, p.sticky = outcomes(want)
	allowed := slices.Concat(p.old, p.new)
	if p.refuses && slices.Contains(allowed, "unreachable") {
		allowed = append(allowed, "refused")
	}
	p.enter(allowed)
}

// inForce allows the new outcomes alone, for calls that begin from now on.
func (p *probe) inForce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enter(p.new)
	p.forced = true
}

func (p *probe) enter(allowed []string) {
	p.phases = append(p.phases, allowed)
	p.seen = map[string]int{}
	p.forced = false
}

// satisfied tells whether all new outcomes were seen in the present phase, and
// enough calls were made.
func (p *probe) satisfied() (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := 0
	for _, n := range p.seen {
		sum += n
	}
	for _, o := range p.new {
		if p.seen[o] == 0 && !p.sticky {
			return false, p.err
		}
	}
	return sum >= callsInForce || sum > 0 && p.slow(), p.err
}

// callsInForce is how many calls at least find a change in force.
const callsInForce = 6

// slow tells whether a call takes long: what times out, and IPv6 TCP that is refused.
func (p *probe) slow() bool {
	return !strings.HasPrefix(p.new[0], "answered") && (p.new[0] == "timeout" || p.proto == "tcp" && p.to.Addr().Is6())
}

// run calls until ended is closed or an outcome is not allowed: fast while something
// changes, and then to find that it is in force.
func (p *probe) run(ended <-chan struct{}) {
	pace := time.NewTicker(3 * time.Millisecond)
	defer pace.Stop()
	for p.once() {
		ticks := 1
		if ok, _ := p.satisfied(); ok && p.isForced() {
			ticks = 8
		}
		for range ticks {
			select {
			case <-ended:
				return
			case <-pace.C:
			}
		}
	}
}

func (p *probe) isForced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forced
}

// port is one that no call of the story had before, and that the kernel gives to
// nobody. What it remembers of a call is a flow, which a call from the same port goes
// on with, whatever changed since: one that was refused, or lost its SYN, may be
// remembered for two minutes.
func (p *probe) port() uint16 { return uint16(11000 + p.ports.Add(1)%21000) }

// mishap is a call that came to nothing for reasons of this program: a port that is
// taken, or a socket that Go (1.26) finds "not pollable" though it has no error.
func mishap(o lab.Outcome) bool {
	return o.Verdict == lab.Failed && (errors.Is(o.Err, syscall.EADDRINUSE) || strings.Contains(o.Err.Error(), "not pollable"))
}

// mostLost is how many answers of pods may be lost in a story. The flow of a datagram
// that was on its way to an endpoint when that went is forgotten after a while, and a
// pod that gets no processor answers only then: its answer is not translated back. What
// is asked of the rules is where they led the datagram.
const mostLost = 3

// sentAgain is when TCP sends a SYN again that was not answered, nearly.
const sentAgain = 950 * time.Millisecond

// call makes one, from a port of its own.
func (p *probe) call(timeout time.Duration) lab.Outcome {
	o := lab.Outcome{Verdict: lab.Failed, Err: syscall.EADDRINUSE}
	line := ""
	for mishap(o) {
		port := p.port()
		line = fmt.Sprintf("%v from %d at %d", p, port, time.Now().UnixNano())
		o = p.host.Try(lab.Call{Proto: p.proto, Port: port, To: p.to, Timeout: timeout, Line: line})
	}
	heard := func(pod *lab.Pod) bool { return pod.Heard(line) }
	if i := slices.IndexFunc(p.pods, heard); i >= 0 && o.Verdict == lab.TimedOut && p.lost < mostLost {
		p.lost++
		return lab.Outcome{Verdict: lab.Answered, Pod: p.pods[i].Name}
	}
	return o
}

// hasTurned tells whether a new outcome was seen.
func (p *probe) hasTurned() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turned
}

// once makes one call; false after an error.
func (p *probe) once() bool {
	p.mu.Lock()
	first := len(p.phases) - 1
	timeout := patience
	if slices.Contains(p.phases[first], "timeout") {
		timeout = silence
		if p.proto == "tcp" && p.to.Addr().Is6() {
			timeout = slowRefusal
		}
	}
	p.mu.Unlock()
	start := time.Now()
	o := p.call(timeout)
	again := time.Since(start) >= sentAgain
	if o.Verdict == lab.TimedOut && p.hasTurned() { // as it was before, or slow?
		o = p.call(patience)
	}
	text := outcomeText(o)

	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	allowed := slices.Concat(p.phases[first:]...)
	isOld, isNew := slices.Contains(p.old, text), slices.Contains(p.new, text)
	switch {
	case p.proto == "tcp" && again && o.Verdict != lab.Answered && (first != len(p.phases)-1 || !p.forced):
		return true // began as a flow of then, and met the rules of now
	case !slices.Contains(allowed, text):
		p.err = fmt.Errorf("%v: call %d: %v, want %s", p, p.calls, o, strings.Join(allowed, " or "))
	case p.turned && isOld && !isNew && first == len(p.phases)-1:
		p.err = fmt.Errorf("%v: call %d: %v, back from what was already changed", p, p.calls, o)
	}
	// Silence proves no change: it may be a slow answer.
	p.turned = p.turned || isNew && !isOld && o.Verdict != lab.TimedOut
	if first == len(p.phases)-1 {
		p.seen[text]++
	}
	if p.sticky && p.forced && len(p.seen) > 1 {
		p.err = fmt.Errorf("%v: answers of %v in spite of affinity", p, p.seen)
	}
	return p.err == nil
}
