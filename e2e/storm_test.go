package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan/lab"
)

// storm changes Services at random, knows who may answer at which address, and calls
// all of them, all the time, through node1.
type storm struct {
	*cluster
	random   *rand.Rand
	services []manifest
	allowed  atomic.Pointer[answerers]

	calling sync.WaitGroup
	ended   chan struct{}
	calls   atomic.Int64
	mu      sync.Mutex
	wrong   []string // what was answered by somebody else
}

// answerers are the pods that may answer at an address: those of what is wanted, and
// of all that was wanted since it was last known to be in force. It never changes.
type answerers map[netip.AddrPort]map[string]bool

// stormPools are the pods of each Service: never the same for two of them.
var stormPools = [][]string{{"a", "x"}, {"b", "y"}, {"a", "b"}, {"x", "y"}, {"a", "y"}}

// newStorm begins with all Services there. The seed is in the test's output.
func newStorm(t *testing.T, c *cluster, seed uint64) *storm {
	t.Logf("seed %d", seed)
	s := &storm{cluster: c, random: rand.New(rand.NewPCG(seed, 0)), ended: make(chan struct{})}
	for i := range stormPools {
		s.services = append(s.services, s.placed(i, i))
	}
	s.put()
	return s
}

// placed is Service i at the addresses and node ports of a place.
func (s *storm) placed(i, place int) manifest {
	m := manifest{name: fmt.Sprintf("storm-%d", i), kind: "nodeport", policy: "Cluster", port: 80, nodePort: 31100 + 2*place,
		cluster: pair("10.96.4.%d", "fd00:96::4%02x", 1+place)}
	return m.with(stormPools[i]...)
}

// step changes one thing, or two that belong together.
func (s *storm) step() {
	i := s.random.IntN(len(s.services))
	m := &s.services[i]
	switch s.random.IntN(8) {
	case 0: // it comes or goes
		m.kind = map[string]string{"": "nodeport"}[m.kind]
	case 1: // two change places
		o := &s.services[s.random.IntN(len(s.services))]
		m.cluster, o.cluster, m.nodePort, o.nodePort = o.cluster, m.cluster, o.nodePort, m.nodePort
	case 2:
		m.policy = []string{"Cluster", "Local"}[s.random.IntN(2)]
	default:
		m.endpoints = nil
		for _, pod := range stormPools[i] {
			switch s.random.IntN(4) {
			case 0: // not there
			case 1:
				m.endpoints = append(m.endpoints, podState{pod: pod, serving: true, terminating: true})
			default:
				m.endpoints = append(m.endpoints, podState{pod: pod, ready: true, serving: true})
			}
		}
	}
	s.put()
}

// put writes the manifests; from before that on, new pods may answer.
func (s *storm) put() {
	more := s.now()
	if before := s.allowed.Load(); before != nil {
		for to, pods := range *before {
			if more[to] == nil {
				more[to] = map[string]bool{}
			}
			maps.Copy(more[to], pods)
		}
	}
	s.allowed.Store(&more)
	var b bytes.Buffer
	b.Write(nothing)
	for _, m := range s.services {
		if m.kind != "" {
			b.Write(m.yaml())
		}
	}
	s.apply(map[string][]byte{"storm.yaml": b.Bytes()})
}

// now is who may answer when all that is wanted is in force. With policy Local and
// endpoints elsewhere only, nobody answers; that is not looked at here.
func (s *storm) now() answerers {
	out := answerers{}
	for _, m := range s.services {
		if m.kind == "" {
			continue
		}
		for _, to := range m.entrances() {
			out[to] = map[string]bool{}
			for _, e := range m.endpoints {
				out[to][e.pod] = true
			}
		}
	}
	return out
}

// entrances are the TCP addresses of a Service that are called.
func (m manifest) entrances() []netip.AddrPort {
	node := lab.NumberedNode(1)
	return []netip.AddrPort{
		netip.AddrPortFrom(m.cluster[0], uint16(m.port)), netip.AddrPortFrom(m.cluster[1], uint16(m.port)),
		netip.AddrPortFrom(node.Addrs[0], uint16(m.nodePort)), netip.AddrPortFrom(node.Addrs[1], uint16(m.nodePort)),
	}
}

// call begins the calls; the returned function ends them and says what was wrong.
func (s *storm) call() func() error {
	var to []netip.AddrPort
	for _, m := range s.services {
		to = append(to, m.entrances()...)
	}
	for n, from := range []string{"client", "pod:visitor", "node1"} {
		host := s.host(from)
		s.calling.Go(func() {
			pace := time.NewTicker(every)
			defer pace.Stop()
			for i := n; ; i++ {
				s.one(host, to[i%len(to)])
				select {
				case <-s.ended:
					return
				case <-pace.C:
				}
			}
		})
	}
	end := sync.OnceFunc(func() { close(s.ended); s.calling.Wait() })
	s.t.Cleanup(end)
	return func() error {
		end()
		s.tries += int(s.calls.Load())
		if len(s.wrong) > 0 {
			return fmt.Errorf("%d of %d connections went to a wrong place: %s", len(s.wrong), s.calls.Load(), strings.Join(s.wrong[:min(len(s.wrong), 5)], "; "))
		}
		return nil
	}
}

func (s *storm) one(from *lab.Host, to netip.AddrPort) {
	before := *s.allowed.Load()
	o := from.Dial("tcp", to, silence)
	after := *s.allowed.Load()
	s.calls.Add(1)
	if o.Verdict == lab.Answered && !before[to][o.Pod] && !after[to][o.Pod] {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wrong = append(s.wrong, fmt.Sprintf("%s to %v answered by %s, not of %v", from.Name, to, o.Pod, slices.Sorted(maps.Keys(after[to]))))
	}
}

// settle waits until the rules of node1 are what is wanted. From then on only the pods
// of that may answer.
func (s *storm) settle() error {
	if err := s.inForceOn(s.Node("node1")); err != nil {
		return err
	}
	now := s.now()
	s.allowed.Store(&now)
	return nil
}

// inForceOn waits until the rules of a node are what is wanted.
func (c *cluster) inForceOn(n *lab.Node) error {
	return eventually(func() error {
		difference, err := c.difference(n) // an error when the proxy removes what is being listed
		if err != nil || difference != "" {
			return fmt.Errorf("the rules of %s are not what is wanted (%v):\n%s", n.Name, err, difference)
		}
		return nil
	})
}

// difference is what differs between the manifests and the rules of a node.
func (c *cluster) difference(n *lab.Node) (string, error) {
	b := c.backend.(portolan)
	args := slices.Concat([]string{"plan", "--against", "kernel"}, b.sources(n, c.dir), c.scenario.args)
	out, err := b.command(c.t.Context(), n, args...).CombinedOutput()
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return string(out), nil
	}
	if err != nil {
		return "", fmt.Errorf("plan --against kernel in %s: %w: %s", n.Name, err, out)
	}
	return "", nil
}
