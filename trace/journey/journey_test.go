package journey_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
	"portolan/trace/journey"
)

// edit changes what is known of a node: a pattern in one of its texts, and what takes
// its place.
type edit struct{ node, pattern, with string }

func nodes(t *testing.T, podnet string, edits ...edit) (out []journey.Node) {
	t.Helper()
	for _, name := range []string{"node-1", "node-2"} {
		texts, err := detect.Read(filepath.Join("../../testdata/two-nodes", podnet, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range edits {
			if e.node != name {
				continue
			}
			done := false
			for i := range texts {
				now := regexp.MustCompile(e.pattern).ReplaceAllString(texts[i].Text, e.with)
				done = done || now != texts[i].Text
				texts[i].Text = now
			}
			if !done {
				t.Fatalf("%s: nothing is like %q", name, e.pattern)
			}
		}
		h, err := detect.Host(detect.Options{}, texts...)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, journey.Node{Name: name, Tracer: trace.New(h, trace.Options{Reply: true})})
	}
	return out
}

func flow(t *testing.T, src, dst string) trace.Flow {
	t.Helper()
	to, err := netip.ParseAddrPort(dst)
	if err != nil {
		t.Fatal(err)
	}
	return trace.Flow{Src: netip.MustParseAddr(src), SrcPort: 40000, Dst: to.Addr(), DstPort: to.Port(), Proto: netfilter.TCP}
}

var ruleNumber = regexp.MustCompile(`rule [0-9]+ of`)

// told is a story in short: of each way its share, the nodes with how the packet came
// there, what becomes of it, and the answer.
func told(s journey.Story) string {
	var out []string
	for i := range s.Ways {
		w := &s.Ways[i]
		line := w.Share.RatString()
		for _, l := range w.Legs {
			if l.Over != "" {
				line += " -" + strings.Fields(l.Over)[0] + "-> "
			} else {
				line += " "
			}
			line += l.Node
		}
		o := &w.Last().Outcome
		line += fmt.Sprintf(" %v %v as %v", w.Verdict(), netip.AddrPortFrom(o.Dst, o.DstPort), o.Src)
		switch {
		case w.Lost != "":
			line += "; " + ruleNumber.ReplaceAllString(w.Lost, "a rule of")
		case w.Verdict().Lost():
		case w.Answered:
			line += "; answered"
		default:
			line += "; " + w.Back
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// firstOfFilter is where a rule becomes the first of table filter.
const firstOfFilter = `(\*filter\n(?::[^\n]*\n)*)(-[AIN] )`

// A packet over several nodes, and its answer back.
func TestFollow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, podnet, src, dst string
		edits                  []edit
		want                   string
	}{
		{"somebody outside calls a NodePort", "vxlan", "172.22.7.200", "172.22.7.89:31532", nil,
			"1/2 node-1 forward 10.244.0.4:80 as 10.244.0.1; answered\n1/2 node-1 -within-> node-2 forward 10.244.1.2:80 as 10.244.0.0; answered"},
		{"the same over plain routes", "host-gw", "172.22.7.200", "172.22.7.89:31532", nil,
			"1/2 node-1 forward 10.244.0.4:80 as 10.244.0.1; answered\n1/2 node-1 -by-> node-2 forward 10.244.1.2:80 as 172.22.7.89; answered"},
		{"a pod calls a cluster IP", "vxlan", "10.244.1.9", "10.106.224.38:80", nil,
			"1/2 node-2 -within-> node-1 forward 10.244.0.4:80 as 10.244.1.9; answered\n1/2 node-2 forward 10.244.1.2:80 as 10.244.1.9; answered"},
		{"a node calls a cluster IP", "vxlan", "172.22.7.90", "10.106.224.38:80", nil,
			"1/2 node-2 -within-> node-1 forward 10.244.0.4:80 as 10.244.1.0; answered\n1/2 node-2 output 10.244.1.2:80 as 10.244.1.1; answered"},
		{"a pod calls a pod", "vxlan", "10.244.0.9", "10.244.1.2:80", nil, "1 node-1 -within-> node-2 forward 10.244.1.2:80 as 10.244.0.9; answered"},
		{"a pod calls another node", "host-gw", "10.244.0.9", "172.22.7.90:22", nil, "1 node-1 -by-> node-2 input 172.22.7.90:22 as 172.22.7.89; answered"},
		{"policy Local, and no endpoint on the node that is called", "vxlan", "172.22.7.200", "172.22.7.89:31533", nil,
			"1 node-1 drop 172.22.7.89:31533 as 172.22.7.200"},
		{"policy Local keeps the client's address", "vxlan", "172.22.7.200", "172.22.7.90:31533", nil,
			"1 node-2 forward 10.244.1.3:8080 as 172.22.7.200; answered"},
		{"a firewall stops the tunnel where it arrives", "vxlan", "10.244.0.9", "10.244.1.2:80", []edit{{"node-2", firstOfFilter, "$1-A INPUT -p udp -m udp --dport 8472 -j DROP\n$2"}},
			"1 node-1 drop 10.244.1.2:80 as 10.244.0.9; the packet of the tunnel, 172.22.7.89 -> 172.22.7.90:8472 udp, does not come to node-2: a rule of filter INPUT drops it"},
		{"a firewall stops the tunnel where it leaves", "vxlan", "10.244.0.9", "10.244.1.2:80", []edit{{"node-1", firstOfFilter, "$1-A OUTPUT -p udp -m udp --dport 8472 -j DROP\n$2"}},
			"1 node-1 drop 10.244.1.2:80 as 10.244.0.9; the packet of the tunnel, 172.22.7.89 -> 172.22.7.90:8472 udp, does not leave node-1: a rule of filter OUTPUT drops it"},
		{"a node that forwards nothing", "vxlan", "10.244.0.9", "10.244.1.2:80", []edit{{"node-2", "net.ipv4.ip_forward: 1", "net.ipv4.ip_forward: 0"}},
			"1 node-1 -within-> node-2 drop 10.244.1.2:80 as 10.244.0.9"},
		{"without masquerade the answer goes past the node that translated", "host-gw", "172.22.7.200", "172.22.7.89:31532", []edit{{"node-1", "-A KUBE-MARK-MASQ [^\n]*\n", ""}, {"node-1", "ip saddr != 10.244.0.0/16 ip daddr 10.244.0.0/16 masquerade fully-random", ""}},
			"1/2 node-1 forward 10.244.0.4:80 as 172.22.7.200; answered\n1/2 node-1 -by-> node-2 forward 10.244.1.2:80 as 172.22.7.200; " +
				"node-2 sends the answer 10.244.1.2:80 -> 172.22.7.200:40000 past node-1, which alone could translate it back: the client does not know it"},
		{"no other end", "vxlan", "10.244.0.9", "10.244.1.2:80", []edit{{"node-1", "via: 10.244.1.0", "via: 10.244.7.0"}},
			"1 node-1 unknown 10.244.1.2:80 as 10.244.0.9; no node has the other end of flannel.1, 10.244.7.0"},
		{"the world outside", "vxlan", "10.244.0.9", "198.51.100.7:443", nil, "1 node-1 forward 198.51.100.7:443 as 172.22.7.89; answered"},
		{"over a router that nothing is known of", "host-gw", "10.244.0.9", "10.244.1.2:80", []edit{{"node-1", "via: 172.22.7.90", "via: 172.22.15.253"}},
			"1 node-1 -by-> node-2 forward 10.244.1.2:80 as 10.244.0.9; answered"},
		{"nodes that send to each other", "host-gw", "172.22.7.200", "10.244.9.9:80", []edit{{"node-1", "default, via: [0-9.]*", "default, via: 172.22.7.90"}, {"node-2", "default, via: [0-9.]*", "default, via: 172.22.7.89"}},
			"1 node-1 -by-> node-2 -by-> node-1 -by-> node-2 -by-> node-1 -by-> node-2 -by-> node-1 -by-> node-2 drop 10.244.9.9:80 as 172.22.7.90; it goes round: 8 nodes have sent it on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			at := ""
			if c.dst == "10.244.9.9:80" {
				at = "node-1"
			}
			s, err := journey.Follow(nodes(t, c.podnet, c.edits...), flow(t, c.src, c.dst), at)
			if err != nil {
				t.Fatal(err)
			}
			if got := told(s); !strings.HasPrefix(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// Where a packet comes to first must be known.
func TestFollowStart(t *testing.T) {
	t.Parallel()
	list := nodes(t, "vxlan")
	if _, err := journey.Follow(list, flow(t, "198.51.100.7", "10.106.224.38:80"), ""); err == nil || !strings.Contains(err.Error(), "say which node") {
		t.Error(err)
	}
	if _, err := journey.Follow(list, flow(t, "198.51.100.7", "10.106.224.38:80"), "node-7"); err == nil || !strings.Contains(err.Error(), "no node node-7") {
		t.Error(err)
	}
	s, err := journey.Follow(list, flow(t, "198.51.100.7", "10.106.224.38:80"), "node-2")
	if err != nil || s.Start != "node-2" {
		t.Error(err, s.Start)
	}
}

// A tunnel's packet has both addresses of the nodes, the mark of the packet within, and
// its ways are told.
func TestFollowOuter(t *testing.T) {
	t.Parallel()
	s, err := journey.Follow(nodes(t, "vxlan"), flow(t, "172.22.7.200", "172.22.7.89:31532"), "")
	if err != nil {
		t.Fatal(err)
	}
	l := s.Ways[1].Last()
	if len(l.Outer) != 2 || l.Outer[0].Flow.String() != "172.22.7.89 -> 172.22.7.90:8472 udp" || l.Outer[1].In != "eth0" || l.Flow.In != "flannel.1" || l.Flow.TTL == 64 {
		t.Errorf("%+v", l)
	}
	if !strings.Contains(strings.Join(s.Assumptions, "\n"), "flannel.1 is a vxlan to UDP port 8472") {
		t.Error(s.Assumptions)
	}
}
