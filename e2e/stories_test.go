package e2e

import (
	"slices"
	"testing"
)

// TestStories: what happens to Services in their lives, each change while callers
// call all the time and with the chains counted that it writes. Everybody meets
// what was or what will be, never anything else, and never what was again.
func TestStories(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newChanger(t, b, changeScenario())
		steps := 0
		for _, s := range stories(b.mode) {
			if err := c.run(s); err != nil {
				t.Errorf("%s: %v", b.Name(), err)
			}
			steps += len(s.steps)
		}
		c.count("changes", steps)
	})
}

func stories(mode string) []sequence {
	if mode == "ipvs" { // a step takes a second of a guest's: those in which endpoints and addresses come and go
		return []sequence{endpointStory(), policyStory(), rangesStory(), guardedStory(), reuseStory(), swapStory()}
	}
	return []sequence{
		endpointStory(), portStory(mode), typeStory(), policyStory(), internalPolicyStory(), affinityStory(),
		rangesStory(), guardedStory(), reuseStory(), swapStory(), sameAddressStory(), weightStory(),
	}
}

// forgotten is what a port of a cluster IP meets that its Service does not have: no rule
// is about it in iptables mode; in the others the ports of a known cluster IP are all
// looked after.
func forgotten(mode string) string {
	if mode != "iptables" {
		return "refused"
	}
	return "unreachable"
}

func endpointStory() sequence {
	internal := []*probe{call("pod:visitor", "tcp", "10.96.3.10:80"), call("node1", "udp", "[fd00:96::30a]:80"), call("pod:visitor", "tcp", "[fd00:96::30a]:80")}
	external := []*probe{call("client", "tcp", "198.51.100.210:80"), call("client", "udp", "[2001:db8:198::d2]:80"), call("node1", "udp", "198.51.100.210:80")}
	ports := []*probe{call("client", "tcp", "192.0.2.11:31000"), call("client", "udp", "[2001:db8::11]:31001")}
	n := len(internal) + len(external)
	nowhere := append(everywhere(n, "unreachable"), everywhere(len(ports), "refused")...)
	all := func(outcome string) []string { return everywhere(n+len(ports), outcome) }
	return sequence{
		name:   "endpoints",
		probes: slices.Concat(internal, external, ports),
		before: nowhere,
		steps: []step{
			{what: "a Service without endpoints", services: []manifest{web("lb")}, want: all("refused"),
				chains: "filter-services filter-external"},
			{what: "0 to 1", services: []manifest{web("lb", "a")}, want: all("answered a"),
				chains: "filter-services filter-external services nodeports SVC:web EXT:web SEP:web:a"},
			{what: "one more", services: []manifest{web("lb", "a", "x")}, want: all("answered a,x"),
				chains: "SVC:web SEP:web:x"},
			{what: "one less", services: []manifest{web("lb", "x")}, want: all("answered x"),
				chains: "SVC:web -SEP:web:a"},
			{what: "another instead", services: []manifest{web("lb", "b")}, want: all("answered b"),
				chains: "SVC:web -SEP:web:x SEP:web:b"},
			{what: "1 to 0", services: []manifest{web("lb")}, want: all("refused"),
				chains: "filter-services filter-external services nodeports -SVC:web -EXT:web -SEP:web:b"},
			{what: "0 to 1 again", services: []manifest{web("lb", "y")}, want: all("answered y"),
				chains: "filter-services filter-external services nodeports SVC:web EXT:web SEP:web:y"},
			{what: "deleted", want: nowhere,
				chains: "services nodeports -SVC:web -EXT:web -SEP:web:y"},
		},
	}
}

func portStory(mode string) sequence {
	at := func(port, nodePort int) []manifest {
		m := web("nodeport", "a", "x")
		m.port, m.nodePort = port, nodePort
		return []manifest{m}
	}
	const here, gone = "answered a,x", "refused"
	other := forgotten(mode)
	return sequence{
		name: "ports",
		probes: []*probe{call("pod:visitor", "tcp", "10.96.3.10:80"), call("pod:visitor", "tcp", "10.96.3.10:81"), call("node1", "udp", "[fd00:96::30a]:81"),
			call("client", "tcp", "192.0.2.11:31000"), call("client", "udp", "[2001:db8::11]:31011")},
		before: []string{"unreachable", "unreachable", "unreachable", gone, gone},
		steps: []step{
			{what: "made", services: at(80, 31000), want: []string{here, other, other, here, gone},
				chains: "services nodeports SVC:web EXT:web SEP:web:a SEP:web:x"},
			{what: "another port", services: at(81, 31000), want: []string{other, here, here, here, gone}, chains: "services SVC:web"},
			{what: "another node port", services: at(81, 31010), want: []string{other, here, here, gone, here}, chains: "nodeports"},
			{what: "both back", services: at(80, 31000), want: []string{here, other, other, here, gone}, chains: "services nodeports SVC:web"},
		},
	}
}

func typeStory() sequence {
	const here, gone = "answered a,x", "refused"
	as := func(kind string) []manifest { return []manifest{web(kind, "a", "x")} }
	return sequence{
		name: "types",
		probes: []*probe{call("pod:visitor", "tcp", "10.96.3.10:80"), call("node1", "udp", "[fd00:96::30a]:80"),
			call("client", "tcp", "192.0.2.11:31000"), call("client", "udp", "198.51.100.210:80"), call("client", "tcp", "[2001:db8:198::d2]:80")},
		before: []string{"unreachable", "unreachable", gone, "unreachable", "unreachable"},
		steps: []step{
			{what: "ClusterIP", services: as("clusterip"), want: []string{here, here, gone, "unreachable", "unreachable"},
				chains: "services SVC:web SEP:web:a SEP:web:x"},
			{what: "NodePort", services: as("nodeport"), want: []string{here, here, here, "unreachable", "unreachable"},
				chains: "nodeports EXT:web"},
			{what: "LoadBalancer", services: as("lb"), want: everywhere(5, here), chains: "services"},
			{what: "ipMode Proxy", services: as("lb-proxy"), want: []string{here, here, here, "unreachable", "unreachable"}, chains: "services"},
			{what: "external IPs", services: as("externalip"), want: []string{here, here, gone, here, here}, chains: "services nodeports"},
			{what: "ClusterIP again", services: as("clusterip"), want: []string{here, here, gone, "unreachable", "unreachable"},
				chains: "services -EXT:web"},
		},
	}
}

func policyStory() sequence {
	under := func(policy string, pods ...string) []manifest {
		m := web("lb", pods...)
		m.policy = policy
		return []manifest{m}
	}
	return sequence{
		name: "external policy",
		probes: []*probe{call("client", "tcp", "198.51.100.210:80"), call("client", "udp", "[2001:db8::11]:31001"),
			call("pod:visitor", "tcp", "[2001:db8:198::d2]:80"), call("node1", "udp", "198.51.100.210:80"), call("node1", "tcp", "10.96.3.10:80")},
		before: []string{"unreachable", "refused", "unreachable", "unreachable", "unreachable"},
		steps: []step{
			{what: "Cluster, all elsewhere", services: under("Cluster", "x"), want: everywhere(5, "answered x"),
				chains: "services nodeports SVC:web EXT:web SEP:web:x"},
			{what: "Local, all elsewhere", services: under("Local", "x"), want: []string{"timeout", "timeout", "answered x", "answered x", "answered x"},
				chains: "filter-external EXT:web"},
			{what: "Local, one here", services: under("Local", "a", "x"), want: []string{"answered a", "answered a", "answered a,x", "answered a,x", "answered a,x"},
				chains: "filter-external EXT:web SVL:web SVC:web SEP:web:a"},
			{what: "Cluster again", services: under("Cluster", "a", "x"), want: everywhere(5, "answered a,x"),
				chains: "EXT:web -SVL:web"},
			{what: "Local again, then none anywhere", services: under("Local"), want: everywhere(5, "refused"),
				chains: "filter-services filter-external services nodeports -SVC:web -EXT:web -SEP:web:a -SEP:web:x"},
		},
	}
}

func internalPolicyStory() sequence {
	under := func(policy string, pods ...string) []manifest {
		m := web("nodeport", pods...)
		m.internal = policy
		return []manifest{m}
	}
	return sequence{
		name: "internal policy",
		probes: []*probe{call("pod:visitor", "tcp", "10.96.3.10:80"), call("client", "udp", "[fd00:96::30a]:80"),
			call("client", "tcp", "192.0.2.11:31000")},
		before: []string{"unreachable", "unreachable", "refused"},
		steps: []step{
			{what: "Cluster", services: under("Cluster", "a", "x"), want: everywhere(3, "answered a,x"),
				chains: "services nodeports SVC:web EXT:web SEP:web:a SEP:web:x"},
			{what: "Local", services: under("Local", "a", "x"), want: []string{"answered a", "answered a", "answered a,x"},
				chains: "services SVC:web SVL:web"},
			{what: "Local, none here", services: under("Local", "x"), want: []string{"timeout", "timeout", "answered x"},
				chains: "filter-services services SVC:web -SVL:web -SEP:web:a"},
			{what: "Cluster again", services: under("Cluster", "x"), want: everywhere(3, "answered x"),
				chains: "filter-services services SVC:web"},
		},
	}
}

func affinityStory() sequence {
	with := func(affinity bool) []manifest {
		m := web("clusterip", "a", "x")
		m.affinity = affinity
		return []manifest{m}
	}
	return sequence{
		name: "affinity",
		// Each probe is a client of its own. Which endpoint it gets is chance.
		probes: []*probe{call("pod:visitor", "tcp", "10.96.3.10:80"), call("client", "udp", "[fd00:96::30a]:80")},
		before: everywhere(2, "unreachable"),
		steps: []step{
			{what: "without", services: with(false), want: everywhere(2, "answered a,x"), chains: "services SVC:web SEP:web:a SEP:web:x"},
			{what: "with", services: with(true), want: everywhere(2, "sticky a,x"), chains: "SVC:web SEP:web:a SEP:web:x"},
			{what: "without again", services: with(false), want: everywhere(2, "answered a,x"), chains: "SVC:web SEP:web:a SEP:web:x"},
		},
	}
}

func rangesStory() sequence {
	to := func(ranges ...string) []manifest {
		m := web("lb", "a", "x")
		m.ranges = ranges
		return []manifest{m}
	}
	const here = "answered a,x"
	return sequence{
		name: "source ranges",
		probes: []*probe{call("client", "tcp", "198.51.100.210:80"), call("client", "udp", "[2001:db8:198::d2]:80"),
			call("pod:visitor", "udp", "198.51.100.210:80"), call("pod:visitor", "tcp", "[2001:db8:198::d2]:80"),
			call("pod:visitor", "tcp", "192.0.2.11:31000")},
		before: []string{"unreachable", "unreachable", "unreachable", "unreachable", "refused"},
		steps: []step{
			{what: "none", services: to(), want: everywhere(5, here), chains: "services nodeports SVC:web EXT:web SEP:web:a SEP:web:x"},
			{what: "added", services: to("192.0.2.200/32", "2001:db8::200/128"), want: []string{here, here, "timeout", "timeout", here},
				chains: "filter-firewall services FW:web"},
			{what: "one more", services: to("192.0.2.200/32", "2001:db8::200/128", "10.244.1.0/24", "fd00:244:1::/64"), want: everywhere(5, here),
				chains: "FW:web"},
			{what: "without the client", services: to("10.244.1.0/24", "fd00:244:1::/64"), want: []string{"timeout", "timeout", here, here, here},
				chains: "FW:web"},
			{what: "none again", services: to(), want: everywhere(5, here), chains: "filter-firewall services -FW:web"},
		},
	}
}

// guardedStory: an address with source ranges and policy Local, whose endpoints come
// and go. Nobody who is let in is ever dropped.
func guardedStory() sequence {
	with := func(pods ...string) []manifest {
		m := web("lb", pods...)
		m.policy, m.ranges = "Local", []string{"192.0.2.200/32", "192.0.2.11/32", "10.244.1.50/32", "2001:db8::200/128", "2001:db8::11/128", "fd00:244:1::50/128"}
		return []manifest{m}
	}
	const chains = "filter-services filter-external filter-firewall services nodeports"
	return sequence{
		name: "guarded endpoints",
		probes: []*probe{call("pod:visitor", "tcp", "198.51.100.210:80"), call("node1", "udp", "198.51.100.210:80"), call("pod:visitor", "udp", "[2001:db8:198::d2]:80"),
			call("client", "udp", "198.51.100.210:80"), call("client", "tcp", "192.0.2.11:31000")},
		before: []string{"unreachable", "unreachable", "unreachable", "unreachable", "refused"},
		steps: []step{
			{what: "one elsewhere at once", services: with("x"), want: []string{"answered x", "answered x", "answered x", "timeout", "timeout"},
				chains: "filter-external filter-firewall services nodeports SVC:web EXT:web FW:web SEP:web:x"},
			{what: "1 to 0", services: with(), want: everywhere(5, "refused"), chains: chains + " -SVC:web -EXT:web -FW:web -SEP:web:x"},
			{what: "0 to 1 elsewhere", services: with("x"), want: []string{"answered x", "answered x", "answered x", "timeout", "timeout"},
				chains: chains + " SVC:web EXT:web FW:web SEP:web:x"},
			{what: "1 to 0 again", services: with(), want: everywhere(5, "refused"), chains: chains + " -SVC:web -EXT:web -FW:web -SEP:web:x"},
			{what: "0 to 1 here", services: with("a"), want: everywhere(5, "answered a"), chains: chains + " SVC:web SVL:web EXT:web FW:web SEP:web:a"},
			{what: "none for the last time", services: with(), want: everywhere(5, "refused"), chains: chains + " -SVC:web -SVL:web -EXT:web -FW:web -SEP:web:a"},
		},
	}
}

// reuseStory: a Service goes, and another comes with its addresses at once.
func reuseStory() sequence {
	first, second := web("lb", "a"), web("lb", "x")
	second.name = "other"
	return sequence{
		name: "addresses used again",
		probes: []*probe{call("pod:visitor", "tcp", "10.96.3.10:80"), call("node1", "udp", "[fd00:96::30a]:80"), call("client", "tcp", "198.51.100.210:80"),
			call("client", "udp", "192.0.2.11:31001")},
		before: []string{"unreachable", "unreachable", "unreachable", "refused"},
		steps: []step{
			{what: "the first", services: []manifest{first}, want: everywhere(4, "answered a"),
				chains: "services nodeports SVC:web EXT:web SEP:web:a"},
			{what: "the second instead", services: []manifest{second}, want: everywhere(4, "answered x"),
				chains: "services nodeports -SVC:web -EXT:web -SEP:web:a SVC:other EXT:other SEP:other:x"},
		},
	}
}

// swapStory: two Services exchange their cluster IPs.
func swapStory() sequence {
	first, second := web("clusterip", "a"), web("clusterip", "x")
	second.name, second.cluster = "other", pair("10.96.3.%d", "fd00:96::3%02x", 11)
	after, other := first, second
	after.cluster, other.cluster = second.cluster, first.cluster
	return sequence{
		name: "cluster IPs swapped",
		probes: []*probe{call("pod:visitor", "tcp", "10.96.3.10:80"), call("pod:visitor", "tcp", "10.96.3.11:80"),
			call("client", "udp", "[fd00:96::30a]:80"), call("client", "udp", "[fd00:96::30b]:80")},
		before: everywhere(4, "unreachable"),
		steps: []step{
			{what: "as they are", services: []manifest{first, second}, want: []string{"answered a", "answered x", "answered a", "answered x"},
				chains: "services SVC:web SEP:web:a SVC:other SEP:other:x"},
			{what: "swapped", services: []manifest{after, other}, want: []string{"answered x", "answered a", "answered x", "answered a"},
				chains: "services SVC:web SVC:other"},
		},
	}
}

// sameAddressStory: of two Services with one external IP and port the older has it.
func sameAddressStory() sequence {
	older, younger := web("externalip", "a"), web("externalip", "x")
	older.created, younger.created = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
	younger.name, younger.cluster = "younger", pair("10.96.3.%d", "fd00:96::3%02x", 11)
	return sequence{
		name: "one external IP of two Services",
		probes: []*probe{call("client", "tcp", "198.51.100.210:80"), call("pod:visitor", "udp", "[2001:db8:198::d2]:80"),
			call("client", "tcp", "10.96.3.11:80")},
		before: everywhere(3, "unreachable"),
		steps: []step{
			{what: "the younger alone", services: []manifest{younger}, want: everywhere(3, "answered x"),
				chains: "services SVC:younger EXT:younger SEP:younger:x"},
			{what: "the older comes", services: []manifest{younger, older}, want: []string{"answered a", "answered a", "answered x"},
				chains: "services SVC:web EXT:web SEP:web:a"},
			{what: "the older has no endpoints", services: []manifest{younger, older.with()}, want: []string{"refused", "refused", "answered x"},
				chains: "filter-services filter-external services -SVC:web -EXT:web -SEP:web:a"},
			{what: "the older has them again", services: []manifest{younger, older}, want: []string{"answered a", "answered a", "answered x"},
				chains: "filter-services filter-external services SVC:web EXT:web SEP:web:a"},
			{what: "the older goes", services: []manifest{younger}, want: everywhere(3, "answered x"),
				chains: "services -SVC:web -EXT:web -SEP:web:a"},
		},
	}
}

// weightStory: shares change, and nobody's connection is lost over it.
func weightStory() sequence {
	with := func(annotations string) []manifest {
		m := web("lb", "a", "x")
		m.annotations = annotations
		return []manifest{m}
	}
	here := everywhere(4, "answered a,x")
	return sequence{
		name: "weights",
		probes: []*probe{call("pod:visitor", "tcp", "10.96.3.10:80"), call("node1", "udp", "[fd00:96::30a]:80"),
			call("client", "tcp", "198.51.100.210:80"), call("client", "udp", "[2001:db8::11]:31001")},
		before: []string{"unreachable", "unreachable", "unreachable", "refused"},
		steps: []step{
			{what: "made", services: with(""), want: here, chains: "services nodeports SVC:web EXT:web SEP:web:a SEP:web:x"},
			{what: "more for one", services: with(`portolan.io/weights: "node/node2=3"`), want: here, chains: "SVC:web"},
			{what: "less for it", services: with(`portolan.io/weights: "node/node2=2"`), want: here, chains: "SVC:web"},
			{what: "in turn", services: with(`portolan.io/weights: "node/node2=2", portolan.io/algorithm: round-robin`), want: here, chains: "SVC:web"},
			{what: "all alike, in turn", services: with(`portolan.io/algorithm: round-robin`), want: here, chains: "SVC:web"},
			{what: "none for one", services: with(`portolan.io/weights: "node/node2=0"`), want: everywhere(4, "answered a"), chains: "SVC:web -SEP:web:x"},
			{what: "as at first", services: with(""), want: here, chains: "SVC:web SEP:web:x"},
			{what: "an annotation that is none", services: with("portolan.io/weights: all"), want: here, chains: ""},
		},
	}
}
