package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestNodeStories: what changes of a Node reaches the Services that depend on it,
// and writes no others: its zone, its address, its pod networks.
func TestNodeStories(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		s := changeScenario()
		s.zones["node2"] = "elsewhere"
		s.args = []string{"--detect-local-mode", "NodeCIDR"}
		c := newChanger(t, b, s)
		steps := 0
		for _, story := range []sequence{nodeStory(c), serviceCIDRStory(b.mode)} {
			if err := c.run(story); err != nil {
				t.Errorf("%s: %v", b.Name(), err)
			}
			steps += len(story.steps)
		}
		c.count("changes", steps)
	})
}

// serviceCIDRStory: where the networks of Services are known, nftables mode drops
// what goes to none of them. What a Service answers for is answered all the time.
func serviceCIDRStory(mode string) sequence {
	dropped := "unreachable"
	if mode == "nftables" {
		dropped = "timeout"
	}
	cidrs := func(list ...string) []byte {
		text := ""
		for i, c := range list {
			text += fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: c%d}\nspec: {cidrs: [%s]}\n", i, c)
		}
		return []byte(text + string(nothing))
	}
	const here, away = "answered a,x", "unreachable"
	services := []manifest{web("clusterip", "a", "x")}
	with := func(what string, extra []byte, outcomes ...string) step {
		return step{what: what, services: services, extra: extra, want: append([]string{here, here}, outcomes...)}
	}
	first := with("made", cidrs(), away, away, away)
	first.chains = "services SVC:web SEP:web:a SEP:web:x"
	return sequence{
		name: "networks of Services",
		probes: []*probe{call("pod:visitor", "tcp", "10.96.3.10:80"), call("node1", "tcp", "[fd00:96::30a]:80"),
			call("pod:visitor", "udp", "10.96.5.1:53"), call("node1", "udp", "[fd00:96::505]:53"), call("client", "udp", "10.96.6.1:53")},
		before: everywhere(5, "unreachable"),
		steps: []step{
			first,
			with("known", cidrs(`10.96.0.0/16, "fd00:96::/112"`), dropped, dropped, dropped),
			with("another one", cidrs("10.96.0.0/22", "10.96.6.0/24"), away, away, dropped),
			with("one more", cidrs("10.96.0.0/22", "10.96.6.0/24", `"fd00:96::/112"`), away, dropped, dropped),
			with("one less", cidrs("10.96.0.0/22"), away, away, away),
			with("not known", cidrs(), away, away, away),
		},
	}
}

func nodeStory(c *changer) sequence {
	hinted := web("clusterip")
	hinted.name, hinted.cluster, hinted.endpoints = "hinted", pair("10.96.3.%d", "fd00:96::3%02x", 11), stateEndpoints["hinted"]
	guarded := web("lb", "x")
	guarded.policy, guarded.ranges = "Local", []string{"192.0.2.200/32", "192.0.2.8/29", "2001:db8::200/128", "2001:db8::10/124"}
	services := []manifest{hinted, guarded}

	// node gives the Nodes with other texts in place of some, from now on.
	present := string(c.scenario.nodeManifests())
	node := func(pairs ...string) []byte {
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(present, pairs[i]) {
				c.t.Fatalf("no %q in the Nodes", pairs[i])
			}
			present = strings.ReplaceAll(present, pairs[i], pairs[i+1])
		}
		return []byte(present)
	}
	want := func(hinted, external string) []string {
		return []string{hinted, hinted, external, external, "answered x"}
	}
	return sequence{
		name: "node",
		probes: []*probe{call("pod:visitor", "tcp", "10.96.3.11:80"), call("client", "udp", "[fd00:96::30b]:80"),
			call("client", "tcp", "198.51.100.210:80"), call("client", "udp", "[2001:db8:198::d2]:80"), call("node1", "udp", "198.51.100.210:80")},
		before: everywhere(5, "unreachable"),
		steps: []step{
			{what: "made", services: services, want: want("answered x", "timeout"),
				chains: "filter-external filter-firewall services nodeports SVC:hinted SEP:hinted:x SVC:web EXT:web FW:web SEP:web:x"},
			{what: "another zone", services: services, nodes: node("zone: near", "zone: far"), want: want("answered a", "timeout"),
				chains: "SVC:hinted -SEP:hinted:x SEP:hinted:a"},
			{what: "a zone without hints", services: services, nodes: node("zone: far", "zone: other"), want: want("answered a,x", "timeout"),
				chains: "SVC:hinted SEP:hinted:x"},
			{what: "another label", services: services, nodes: node("labels:\n", "labels:\n    some: label\n"), want: want("answered a,x", "timeout"),
				chains: ""},
			{what: "the first zone", services: services, nodes: node("zone: other", "zone: near"), want: want("answered x", "timeout"),
				chains: "SVC:hinted -SEP:hinted:a"},
			// While the ranges hold the address of the node, the load balancer address may be
			// a source too.
			{what: "another address in the ranges", services: services, nodes: node(`"192.0.2.11"`, `"192.0.2.9"`), want: want("answered x", "timeout")},
			{what: "addresses out of the ranges", services: services, nodes: node(`"192.0.2.9"`, `"192.0.2.77"`, `"2001:db8::11"`, `"2001:db8::77"`),
				want: want("answered x", "timeout"), chains: "FW:web"},
			{what: "back in the ranges", services: services, nodes: node(`"192.0.2.77"`, `"192.0.2.11"`, `"2001:db8::77"`, `"2001:db8::11"`),
				want: want("answered x", "timeout"), chains: "FW:web"},
			{what: "smaller pod networks", services: services, nodes: node("10.244.1.0/24", "10.244.1.0/25", "fd00:244:1::/64", "fd00:244:1::/65"),
				want: want("answered x", "timeout"), chains: "SVC:hinted SVC:web EXT:web SVC:still"},
		},
	}
}
