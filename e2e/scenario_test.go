package e2e

import (
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"portolan/lab"
)

// scenario is one file of testdata.
type scenario struct {
	name      string
	topology  lab.Topology
	zones     map[string]string // node -> zone
	manifests []byte
	args      []string
	neighbour []string // commands that make somebody else's rules on node1
	flows     []flow
	podnet    string // backend of the pod network; empty for the lab's plain routes
}

// flow is one line of a flow table.
type flow struct {
	line    string
	from    string // "client", a node's name, or "pod:NAME"
	source  netip.Addr
	proto   string
	to      netip.AddrPort
	verdict lab.Verdict
	pods    []string
	parts   map[string]int // of all connections, by pod
	sticky  bool           // all tries reach the same pod
	seen    string
	only    []string // proxy modes in which the line holds; none for all
}

func readScenarios(t *testing.T) []scenario { return readScenariosOf(t, "testdata") }

func readScenariosOf(t *testing.T, folder string) []scenario {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var list []scenario
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseScenario(strings.TrimSuffix(filepath.Base(file), ".txtar"), data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		list = append(list, s)
	}
	return list
}

func parseScenario(name string, data []byte) (scenario, error) {
	s := scenario{name: name, zones: map[string]string{}}
	for _, part := range txtar.Parse(data).Files {
		var err error
		switch part.Name {
		case "topology":
			err = s.parseTopology(lines(part.Data))
		case "manifests.yaml":
			s.manifests = part.Data
		case "args":
			s.args = lines(part.Data)
		case "neighbour":
			s.neighbour = lines(part.Data)
		case "flows":
			err = s.parseFlows(lines(part.Data))
		default:
			err = fmt.Errorf("unknown part %q", part.Name)
		}
		if err != nil {
			return s, err
		}
	}
	if len(s.flows) == 0 || len(s.manifests) == 0 || len(s.topology.Nodes) == 0 {
		return s, fmt.Errorf("a scenario needs a topology, manifests and flows")
	}
	return s, nil
}

// lines gives the lines without comments and blank ones.
func lines(data []byte) []string {
	var list []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

func (s *scenario) parseTopology(list []string) error {
	s.topology.Client = slices.Clone(lab.ClientAddrs)
	routes := lab.RoutesVia("node1")
	for _, line := range list {
		var err error
		word := strings.Fields(line)
		switch {
		case word[0] == "node" && len(word) >= 2:
			var number int
			number, err = strconv.Atoi(strings.TrimPrefix(word[1], "node"))
			s.topology.Nodes = append(s.topology.Nodes, lab.NumberedNode(number))
			if len(word) > 2 {
				s.zones[word[1]] = word[2]
			}
		case word[0] == "pod" && len(word) == 5:
			err = s.parsePod(word[1:])
		case word[0] == "client" && len(word) == 2:
			var addr netip.Addr
			addr, err = netip.ParseAddr(word[1])
			s.topology.Client = append(s.topology.Client, addr)
		case word[0] == "route" && len(word) == 3:
			var to netip.Prefix
			to, err = netip.ParsePrefix(word[1])
			routes = append(routes, lab.RouteSpec{To: to, Node: word[2]})
		default:
			err = fmt.Errorf("not a topology line")
		}
		if err != nil {
			return fmt.Errorf("topology line %q: %w", line, err)
		}
	}
	s.topology.Routes = routes
	return nil
}

func (s *scenario) parsePod(word []string) error {
	pod := lab.PodSpec{Name: word[0], Node: word[1]}
	for _, text := range strings.Split(word[2], ",") {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return err
		}
		pod.Addrs = append(pod.Addrs, addr)
	}
	for _, text := range strings.Split(word[3], ",") {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return err
		}
		pod.Ports = append(pod.Ports, uint16(port))
	}
	s.topology.Pods = append(s.topology.Pods, pod)
	return nil
}

func (s *scenario) parseFlows(list []string) error {
	for _, line := range list {
		f, err := parseFlow(line)
		if err != nil {
			return fmt.Errorf("flow %q: %w", line, err)
		}
		s.flows = append(s.flows, f)
	}
	return nil
}

func (f flow) holdsIn(mode string) bool { return f.only == nil || slices.Contains(f.only, mode) }

func parseFlow(line string) (flow, error) {
	f := flow{line: strings.Join(strings.Fields(line), " ")}
	word := strings.Fields(line)
	if modes, is := strings.CutPrefix(word[len(word)-1], "only:"); is {
		f.only, word = strings.Split(modes, ","), word[:len(word)-1]
		for _, mode := range f.only {
			if err := oneOf(mode, cellModes); err != nil {
				return f, err
			}
		}
	}
	if len(word) < 5 || word[3] != "->" {
		return f, fmt.Errorf("want FROM PROTO DESTINATION -> VERDICT [ENDPOINTS SOURCE]")
	}
	from, source, bound := strings.Cut(word[0], "@")
	f.from, f.proto = from, word[1]
	var err error
	if bound {
		if f.source, err = netip.ParseAddr(source); err != nil {
			return f, err
		}
	}
	if f.to, err = netip.ParseAddrPort(word[2]); err != nil {
		return f, err
	}
	if f.proto != "tcp" && f.proto != "udp" && f.proto != "sctp" {
		return f, fmt.Errorf("unknown protocol %q", f.proto)
	}
	switch {
	case word[4] == "refused" && len(word) == 5:
		f.verdict = lab.Refused
	case word[4] == "timeout" && len(word) == 5:
		f.verdict = lab.TimedOut
	case word[4] == "unreachable" && len(word) == 5:
		f.verdict = lab.Unreachable
	case word[4] == "answered" && len(word) == 7:
		f.verdict, f.seen = lab.Answered, word[6]
		pods := word[5]
		if inner, sticky := strings.CutPrefix(pods, "one("); sticky {
			f.sticky, pods = true, strings.TrimSuffix(inner, ")")
		}
		return f, f.parsePods(pods)
	default:
		return f, fmt.Errorf("unknown verdict, or not what it needs")
	}
	return f, nil
}

// parsePods reads "a*3,b": who answers, and how often beside the others.
func (f *flow) parsePods(text string) error {
	f.parts = map[string]int{}
	for word := range strings.SplitSeq(text, ",") {
		pod, number, weighted := strings.Cut(word, "*")
		part := 1
		if weighted {
			var err error
			if part, err = strconv.Atoi(number); err != nil || part < 1 {
				return fmt.Errorf("%q is not POD*PARTS", word)
			}
		}
		f.pods, f.parts[pod] = append(f.pods, pod), part
	}
	return nil
}

// share is a pod's part of all connections.
func (f *flow) share(pod string) *big.Rat {
	all := 0
	for _, part := range f.parts {
		all += part
	}
	return big.NewRat(int64(f.parts[pod]), int64(max(all, 1)))
}

// nodeManifests are the Node objects of the scenario.
func (s *scenario) nodeManifests() []byte {
	var b strings.Builder
	for i, n := range s.topology.Nodes {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: %s\n", n.Name)
		if s.podnet != "" {
			b.WriteString(podNetAnnotations(s.podnet, i+1, n))
		}
		fmt.Fprintf(&b, "  labels:\n    kubernetes.io/hostname: %s\n", n.Name)
		if zone := s.zones[n.Name]; zone != "" {
			fmt.Fprintf(&b, "    topology.kubernetes.io/zone: %s\n", zone)
		}
		fmt.Fprintf(&b, "spec:\n  podCIDR: %s\n  podCIDRs:\n", n.Pods[0])
		for _, p := range n.Pods {
			fmt.Fprintf(&b, "  - %s\n", p)
		}
		fmt.Fprintf(&b, "status:\n  addresses:\n")
		for _, a := range n.Addrs {
			fmt.Fprintf(&b, "  - type: InternalIP\n    address: %q\n", a)
		}
	}
	return []byte(b.String())
}

// TestScenarioLines: lines that are not what testdata/README.md describes are errors.
func TestScenarioLines(t *testing.T) {
	for _, line := range []string{
		"client tcp 10.96.0.10:80 -> answered a,b kept",
		"client@192.0.2.201 udp [fd00:96::10]:53 -> answered one(a,b) 10.244.1.1",
		"node1 tcp 127.0.0.1:30080 -> refused",
		"node1 tcp 10.96.0.10:80 -> answered a*3,b kept",
	} {
		if _, err := parseFlow(line); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, line := range []string{
		"client tcp 10.96.0.10:80 answered a kept",
		"client icmp 10.96.0.10:80 -> refused",
		"client tcp 10.96.0.10 -> refused",
		"client tcp 10.96.0.10:80 -> answered a",
		"client tcp 10.96.0.10:80 -> refused a kept",
		"client tcp 10.96.0.10:80 -> ignored",
		"client tcp 10.96.0.10:80 -> answered a*0 kept",
		"client@x tcp 10.96.0.10:80 -> refused",
	} {
		if _, err := parseFlow(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

// TestScenariosParse: every file of testdata is a scenario, and there are enough
// flows to speak of.
func TestScenariosParse(t *testing.T) {
	flows := 0
	for _, s := range readScenarios(t) {
		flows += len(s.flows)
		for _, f := range s.flows {
			for _, pod := range f.pods {
				if !slices.ContainsFunc(s.topology.Pods, func(p lab.PodSpec) bool { return p.Name == pod }) {
					t.Errorf("%s: %s: no pod %q", s.name, f.line, pod)
				}
			}
		}
	}
	if flows < 40 {
		t.Errorf("%d flows", flows)
	}
}
