package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"portolan/lab"
	"portolan/service"
	"portolan/verify"
)

// asking is one kind of client at one address, as verify tries it, with what the
// kernel did by the correct rules.
type asking struct {
	service string
	client  string // as verify calls it
	from    []caller
	call    lab.Call
	sticky  bool
	base    map[string]bool // outcomes
	first   map[string]bool // outcomes of first calls, of a sticky one with one source
}

// caller is who makes calls; addr is the zero Addr for any of its own.
type caller struct {
	host *lab.Host
	addr netip.Addr
}

// probes are those of a report on node1.
func (c *cluster) probes(r verify.Report, model *service.Snapshot) (out []*asking) {
	local := map[string][]netip.Addr{}
	sticky := map[string]bool{}
	for s := range model.All() {
		for _, p := range s.Ports {
			name := s.PortName(p).String()
			sticky[name] = s.AffinityTimeout > 0
			for _, e := range p.Endpoints {
				if e.LocalTo("node1") {
					local[name] = append(local[name], e.Addr.Addr())
				}
			}
		}
	}
	client := func(last byte) caller { return caller{c.Client, netip.AddrFrom4([4]byte{192, 0, 2, last})} }
	for _, row := range r.Rows {
		to, proto, _ := strings.Cut(row.Frontend, "/")
		endpoints := local[row.Service]
		for _, cell := range row.Cells {
			p := &asking{service: row.Service, client: cell.Client, sticky: sticky[row.Service], call: lab.Call{Proto: proto, To: netip.MustParseAddrPort(to)}}
			switch cell.Client {
			case "node":
				p.from = []caller{{host: c.host("node1")}}
			case "pod":
				p.from = []caller{{host: c.host("pod:visitor")}}
			case "pod elsewhere":
				p.from = []caller{{host: c.host("pod:elsewhere")}}
			case "outside":
				p.from = []caller{client(200)}
				for n := byte(201); p.sticky && n < 211; n++ {
					p.from = append(p.from, client(n))
				}
			case "outside, in range":
				p.from = []caller{client(195)}
			case "endpoint":
				for _, pod := range c.scenario.topology.Pods {
					if slices.Contains(pod.Addrs, endpoints[0]) {
						p.from, p.client = []caller{{host: c.host("pod:" + pod.Name)}}, "endpoint "+pod.Name
					}
				}
				endpoints = endpoints[1:]
			default:
				panic("e2e: client " + cell.Client)
			}
			out = append(out, p)
		}
	}
	return out
}

// once tells whether the client is remembered after its first call, so that more
// calls show nothing new.
func (p *asking) once() bool { return p.sticky && len(p.from) == 1 }

// settled tells whether what becomes of the client does not depend on chance but for
// who answers. A pod elsewhere that is sent to a third node without masquerade is not:
// the answer goes past this node, as the Service asks (policy Local).
func (p *asking) settled() bool {
	if p.once() {
		return true
	}
	answered := 0
	for key := range p.base {
		if strings.HasPrefix(key, "answered") {
			answered++
		}
	}
	return answered == 0 && len(p.base) == 1 || answered == len(p.base)
}

// outcomeOf is what a call shows: who answered, and from where it seemed to come.
func outcomeOf(p *asking, o lab.Outcome) string {
	if o.Verdict != lab.Answered {
		return o.Verdict.String()
	}
	seen := o.Seen.Addr().String()
	if o.Seen.Addr() == o.Local.Addr() {
		seen = "kept"
	}
	return "answered by " + o.Pod + ", seen " + seen
}

// observe makes calls until all outcomes of the correct rules were seen, or another
// one: then it tells that. With nothing to compare with it makes many calls and
// keeps what it sees. It gives up when enough is known.
func (p *asking) observe(o observation) (different string) {
	if p.once() {
		return "" // see firstCalls
	}
	if o.learn {
		p.base = map[string]bool{}
	}
	seen := map[string]bool{}
	for n := 0; n < o.most && (n < o.least || len(seen) < len(p.base)) && !o.enough.Load(); n++ {
		from := p.from[n%len(p.from)]
		got := p.try(from)
		if key := outcomeOf(p, got); !o.learn && !p.base[key] {
			return key
		} else if seen[key] = true; o.learn {
			p.base[key] = true
		}
		if got.Verdict != lab.Answered && n >= o.sure(p) {
			break // refusals and silence are no matter of chance in these rules
		}
		if p.sticky && got.Verdict == lab.Answered {
			if again := p.try(from); again.Pod != got.Pod {
				return "first " + got.Pod + ", then " + again.Pod
			}
		}
	}
	for key := range p.base {
		if !seen[key] && !o.enough.Load() {
			return "never " + key
		}
	}
	return ""
}

// observation says how thorough to be.
type observation struct {
	learn       bool
	least, most int
	// enough: that something is different is known, and what else is does not matter.
	enough *atomic.Bool
}

// sure is the number of further calls without an answer that tell for sure that there
// is none; see settled for whom chance may decide.
func (o observation) sure(p *asking) int {
	if o.learn && p.client == "pod elsewhere" {
		return 10
	}
	return 1
}

// try makes one call; silence where an answer is usual is tried once more, longer:
// the machine may be busy.
func (p *asking) try(from caller) lab.Outcome {
	call := p.call
	call.From, call.Timeout = from.addr, silence/2
	o := from.host.Try(call)
	if o.Verdict == lab.TimedOut && !p.base[lab.TimedOut.String()] {
		call.Timeout = 2 * silence
		o = from.host.Try(call)
	}
	return o
}

// share is the part of many calls that one pod answers.
func (p *asking) shares(calls int) map[string]int {
	out := map[string]int{}
	for range calls {
		out[outcomeOf(p, p.try(p.from[0]))]++
	}
	return out
}

// observeAll observes beside each other and lists what is different, sorted. Unless
// it learns, one difference is enough.
func observeAll(list []*asking, o observation) (out []string) {
	slots := make(chan struct{}, 64)
	o.enough = &atomic.Bool{}
	var mu sync.Mutex
	var running sync.WaitGroup
	for _, p := range list {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if d := p.observe(o); d != "" {
				mu.Lock()
				defer mu.Unlock()
				out = append(out, fmt.Sprintf("%s at %s %v: %s", p.client, p.service, p.call.To, d))
				o.enough.Store(!o.learn)
			}
		})
	}
	running.Wait()
	slices.Sort(out)
	return out
}
