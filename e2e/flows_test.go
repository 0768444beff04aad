package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan/lab"
)

const (
	silence  = 300 * time.Millisecond // as long as nothing must come back
	patience = 5 * time.Second        // for answers; a lost SYN is sent again after 1 s

	enoughTries = 24 // for an endpoint that must not answer to show itself
	mostTries   = 200
)

// TestFlows runs every scenario against every backend.
func TestFlows(t *testing.T) {
	t.Parallel()
	for _, s := range readScenarios(t) {
		for _, b := range backends {
			t.Run(s.name+"/"+b.Name(), func(t *testing.T) {
				t.Parallel()
				newCluster(t, b, s).flows("flows")
			})
		}
	}
}

// TestFlowsAcrossPodNetworks runs them with endpoints of other nodes behind a pod
// network of ours, over vxlan and by plain routes in turn.
func TestFlowsAcrossPodNetworks(t *testing.T) {
	t.Parallel()
	for i, s := range readScenarios(t) {
		for j, b := range backends {
			s.podnet = []string{"vxlan", "host-gw"}[(i+j)%2]
			t.Run(s.name+"/"+b.Name()+"/"+s.podnet, func(t *testing.T) {
				t.Parallel()
				newCluster(t, b, s).flows("podnet flows")
			})
		}
	}
}

// flows checks all flows of the scenario that are for the backend's mode.
func (c *cluster) flows(group string) {
	b := c.backend.(portolan)
	ran := 0
	var paper *offline
	for _, f := range c.scenario.flows {
		if !f.holdsIn(b.mode) {
			continue
		}
		ran++
		var err error
		if f.proto == "sctp" && !c.scenario.topology.SCTP { // kernels without it have its rules, but no packets
			if paper == nil {
				paper = c.onPaper(b)
			}
			_, err = paper.check(f)
		} else {
			err = c.check(f)
		}
		if err != nil {
			c.t.Errorf("%s\n\t%v", f.line, err)
		}
	}
	c.count(group, ran)
}

// check tries a flow until it is sure of the verdict, the set of endpoints and the
// source address they saw.
func (c *cluster) check(f flow) error {
	from := c.host(f.from)
	call := lab.Call{Proto: f.proto, From: f.source, To: f.to, Timeout: patience}
	tries := enoughTries
	switch f.verdict {
	case lab.TimedOut:
		call.Timeout, tries = silence, 2
	case lab.Refused, lab.Unreachable:
		tries = 3
	}
	answered := map[string]int{}
	for i := 0; i < tries || (len(answered) < len(f.pods) && !f.sticky && i < mostTries); i++ {
		o := c.try(from, call)
		if o.Verdict != f.verdict {
			return fmt.Errorf("try %d: %v, after answers of %v", i+1, o, answered)
		}
		if o.Verdict != lab.Answered {
			continue
		}
		answered[o.Pod]++
		if !slices.Contains(f.pods, o.Pod) {
			return fmt.Errorf("try %d: %v, who is not among the endpoints", i+1, o)
		}
		want, err := c.seen(f, o)
		if err != nil {
			return err
		}
		if o.Seen.Addr() != want {
			return fmt.Errorf("try %d: %v, want source %v", i+1, o, want)
		}
	}
	switch {
	case f.sticky && len(answered) != 1:
		return fmt.Errorf("affinity was not kept: answers of %v", answered)
	case !f.sticky && len(answered) != len(f.pods):
		return fmt.Errorf("answers of %v only, want %s", answered, strings.Join(f.pods, ","))
	}
	return nil
}
