package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// handWritten is a Service proxy of one rule each, to see that the lab shows what
// rules do: a load-balanced address, a node port with the source hidden and one
// with it kept, a hairpin, a refused address and a dropped one.
const handWritten = `*nat
:SVC - [0:0]
:POD1 - [0:0]
:POD2 - [0:0]
-A PREROUTING -d 10.96.0.10/32 -p tcp --dport 80 -j SVC
-A OUTPUT -d 10.96.0.10/32 -p tcp --dport 80 -j SVC
-A PREROUTING -d 10.96.0.10/32 -p udp --dport 53 -j SVC
-A PREROUTING -d 10.96.0.11/32 -p tcp --dport 80 -j POD1
-A PREROUTING -d 192.0.2.11/32 -p tcp --dport 30080 -j MARK --set-mark 1
-A PREROUTING -d 192.0.2.11/32 -p tcp --dport 30080 -j POD2
-A PREROUTING -d 192.0.2.11/32 -p tcp --dport 30081 -j POD1
-A SVC ! -s 10.244.0.0/16 -j MARK --set-mark 1
-A SVC -m statistic --mode random --probability 0.5 -j POD1
-A SVC -j POD2
-A POD1 -s 10.244.1.11/32 -j MARK --set-mark 1
-A POD1 -p tcp -j DNAT --to-destination 10.244.1.11:8080
-A POD1 -p udp -j DNAT --to-destination 10.244.1.11:8080
-A POD2 -p tcp -j DNAT --to-destination 10.244.2.11:8080
-A POD2 -p udp -j DNAT --to-destination 10.244.2.11:8080
-A POSTROUTING -m mark --mark 1 -j MASQUERADE
COMMIT
*filter
-A INPUT -p tcp --dport 30082 -j DROP
-A INPUT -p udp --dport 30083 -j REJECT
-A FORWARD -d 10.96.0.12/32 -j REJECT
-A OUTPUT -d 10.96.0.12/32 -j REJECT
-A FORWARD -d 10.96.0.13/32 -j DROP
-A OUTPUT -d 10.96.0.13/32 -j DROP
COMMIT
`

const handWritten6 = `*nat
-A PREROUTING -d fd00:96::10/128 -p tcp --dport 80 -j DNAT --to-destination [fd00:244:1::11]:8080
-A PREROUTING -d fd00:96::10/128 -p udp --dport 53 -j DNAT --to-destination [fd00:244:2::11]:8080
-A POSTROUTING -d fd00:244:2::11/128 -p udp -j MASQUERADE
-A POSTROUTING -s fd00:244:1::11/128 -d fd00:244:1::11/128 -j MASQUERADE
COMMIT
*filter
-A FORWARD -d fd00:96::12/128 -j REJECT
-A OUTPUT -d fd00:96::12/128 -j REJECT
COMMIT
`

// TestVerdicts: with hand-written rules in node1 the lab sees every verdict, every
// kind of source, in both iptables variants.
func TestVerdicts(t *testing.T) {
	for _, v := range []Variant{Legacy, NFT} {
		t.Run(string(v), func(t *testing.T) {
			if !v.Available() {
				t.Skipf("no iptables of variant %s here", v)
			}
			l := newLab(t, Numbered(2, 1, 8080))
			node := l.Node("node1")
			restore(t, node, v, "iptables-restore", handWritten)
			restore(t, node, v, "ip6tables-restore", handWritten6)

			for _, c := range []call{
				{l.Client, "tcp", "10.96.0.10:80", Answered, "pod-1-1 pod-2-1", "10.244.1.1 192.0.2.11"},
				{l.Client, "udp", "10.96.0.10:53", Answered, "pod-1-1 pod-2-1", "10.244.1.1 192.0.2.11"},
				{&l.Pod("pod-1-1").Host, "tcp", "10.96.0.11:80", Answered, "pod-1-1", "10.244.1.1"},
				{l.Client, "tcp", "192.0.2.11:30080", Answered, "pod-2-1", "192.0.2.11"},
				{l.Client, "tcp", "192.0.2.11:30081", Answered, "pod-1-1", kept},
				{l.Client, "tcp", "192.0.2.11:30082", TimedOut, "", ""},
				{l.Client, "udp", "192.0.2.11:30083", Refused, "", ""},
				{l.Client, "tcp", "192.0.2.11:30084", Refused, "", ""},
				{l.Client, "udp", "192.0.2.11:30084", Refused, "", ""},
				{l.Client, "tcp", "10.96.0.12:80", Refused, "", ""},
				{l.Client, "udp", "10.96.0.12:80", Refused, "", ""},
				{&node.Host, "tcp", "10.96.0.12:80", Refused, "", ""},
				{&node.Host, "udp", "10.96.0.12:80", Refused, "", ""},
				{&node.Host, "udp", "10.96.0.13:80", TimedOut, "", ""},
				{&node.Host, "tcp", "10.96.0.13:80", TimedOut, "", ""},
				{l.Client, "tcp", "10.96.0.13:80", TimedOut, "", ""},
				{l.Client, "tcp", "10.96.0.14:80", Unreachable, "", ""},
				{l.Client, "udp", "10.96.0.14:80", Unreachable, "", ""},
				{&node.Host, "tcp", "10.96.0.14:80", Unreachable, "", ""},
				{&l.Pod("pod-2-1").Host, "udp", "10.96.0.14:80", Unreachable, "", ""},
				{l.Client, "tcp", "[fd00:96::10]:80", Answered, "pod-1-1", kept},
				{l.Client, "udp", "[fd00:96::10]:53", Answered, "pod-2-1", "2001:db8::11"},
				{&l.Pod("pod-1-1").Host, "tcp", "[fd00:96::10]:80", Answered, "pod-1-1", "fd00:244:1::1"},
				{l.Client, "tcp", "[fd00:96::12]:80", Refused, "", ""},
				{l.Client, "udp", "[fd00:96::12]:80", Refused, "", ""},
				{&node.Host, "tcp", "[fd00:96::12]:80", Refused, "", ""},
				{l.Client, "tcp", "[fd00:96::14]:80", Unreachable, "", ""},
				{l.Client, "udp", "[fd00:96::14]:80", Unreachable, "", ""},
				{&node.Host, "udp", "[fd00:96::14]:80", Unreachable, "", ""},
			} {
				if err := c.check(); err != nil {
					t.Errorf("%s %s %s: %v", c.from.Name, c.proto, c.to, err)
				}
			}
		})
	}
}

const kept = "kept"

type call struct {
	from      *Host
	proto, to string
	verdict   Verdict
	pods      string // who answers; all of them in 60 tries
	seen      string // source addresses they may see, or kept
}

func (c call) check() error {
	missing := strings.Fields(c.pods)
	for try := 0; try == 0 || (try < 60 && len(missing) > 0); try++ {
		timeout := patience
		if c.verdict == TimedOut {
			timeout = 300 * time.Millisecond
		}
		o := c.from.Dial(c.proto, at(c.to), timeout)
		if o.Verdict != c.verdict {
			return fmt.Errorf("%v, want %v", o, c.verdict)
		}
		if o.Verdict != Answered {
			return nil
		}
		want := c.seen
		if want == kept {
			want = o.Local.Addr().String()
		}
		if !slices.Contains(strings.Fields(want), o.Seen.Addr().String()) || !slices.Contains(strings.Fields(c.pods), o.Pod) {
			return fmt.Errorf("%v, want one of %s, which saw %s", o, c.pods, want)
		}
		missing = without(missing, o.Pod)
	}
	if len(missing) > 0 {
		return fmt.Errorf("%v never answered", missing)
	}
	return nil
}

func without(list []string, item string) []string {
	var rest []string
	for _, s := range list {
		if s != item {
			rest = append(rest, s)
		}
	}
	return rest
}

// restore feeds rules to a node.
func restore(t *testing.T, n *Node, v Variant, program, rules string) {
	t.Helper()
	cmd := n.Command(context.Background(), v, program)
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s in %s: %v\n%s", program, n.Name, err, out)
	}
}
