package conntrack

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"portolan/kernel/conntrack"
	"portolan/service"
)

// dns answers on every kind of address, UDP and TCP and SCTP alike. Of its
// endpoints one is ready, one drains, one is not ready.
func dns() *service.Service {
	s := &service.Service{
		Name:            service.Name{Namespace: "kube-system", Name: "dns"},
		Created:         time.Unix(1000, 0),
		ClusterIPs:      addrs("10.96.0.10", "fd00:96::a"),
		ExternalIPs:     addrs("203.0.113.10"),
		LoadBalancerIPs: addrs("198.51.100.10"),
		ExternalPolicy:  service.Local, // does not matter to flows that are there
	}
	for _, p := range []service.Protocol{service.SCTP, service.TCP, service.UDP} {
		s.Ports = append(s.Ports, service.Port{Name: string(p), Protocol: p, Port: 53, NodePort: 30053, Endpoints: []service.Endpoint{
			{Addr: addrPort("10.244.1.1:53"), Ready: true, Serving: true},
			{Addr: addrPort("10.244.1.2:53"), Serving: true, Terminating: true},
			{Addr: addrPort("10.244.1.3:53")},
			{Addr: addrPort("[fd00:244::1]:53"), Ready: true, Serving: true},
		}})
	}
	return s
}

// empty has no endpoints.
func empty() *service.Service {
	return &service.Service{
		Name: service.Name{Namespace: "default", Name: "empty"}, Created: time.Unix(1001, 0),
		ClusterIPs: addrs("10.96.0.11"),
		Ports:      []service.Port{{Protocol: service.UDP, Port: 53, NodePort: 30054}},
	}
}

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func addrPort(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// local are the addresses of the node.
var local = addrs("127.0.0.1", "192.0.2.11", "10.244.1.254", "::1", "2001:db8::11")

// flow of one client; a line is PROTOCOL TO FROM [STATE].
func flow(t *testing.T, line string) conntrack.Flow {
	t.Helper()
	word := append(strings.Fields(line), "")
	f := conntrack.Flow{
		Proto: numbers[service.Protocol(word[0])],
		Orig:  conntrack.Tuple{Src: addrPort("192.0.2.7:1000"), Dst: addrPort(word[1])},
		Reply: conntrack.Tuple{Src: addrPort(word[2]), Dst: addrPort("192.0.2.7:1000")},
	}
	switch word[3] {
	case "":
	case "established":
		f.Status, f.State = conntrack.SeenReply|conntrack.Assured, conntrack.TCPEstablished
	case "closing":
		f.Status, f.State = conntrack.SeenReply|conntrack.Assured, 5
	case "zone":
		f.Zone = 7
	default:
		t.Fatalf("no state %q", word[3])
	}
	return f
}

const judged = `
# where it leads to an endpoint that serves, whatever the policies say
udp  10.96.0.10:53       10.244.1.1:53                leads somewhere
udp  203.0.113.10:53     10.244.1.1:53                leads somewhere
udp  198.51.100.10:53    10.244.1.1:53                leads somewhere
udp  192.0.2.11:30053    10.244.1.1:53                leads somewhere
udp  10.244.1.254:30053  10.244.1.1:53                leads somewhere
udp  [fd00:96::a]:53     [fd00:244::1]:53             leads somewhere
tcp  10.96.0.10:53       10.244.1.1:53  established   leads somewhere
# draining
udp  10.96.0.10:53       10.244.1.2:53                leads somewhere
tcp  10.96.0.10:53       10.244.1.2:53                leads somewhere
# not ready, and gone
udp  10.96.0.10:53       10.244.1.3:53                endpoint does not serve
udp  10.96.0.10:53       10.244.1.9:53                endpoint does not serve
udp  203.0.113.10:53     10.244.1.9:53                endpoint does not serve
udp  198.51.100.10:53    10.244.1.9:53  established   endpoint does not serve
udp  192.0.2.11:30053    10.244.1.9:53                endpoint does not serve
udp  [fd00:96::a]:53     [fd00:244::9]:53             endpoint does not serve
udp  10.96.0.10:53       10.244.1.1:54                endpoint does not serve
udp  10.96.0.11:53       10.244.1.1:53                endpoint does not serve
udp  192.0.2.11:30054    10.244.1.1:53                endpoint does not serve
tcp  10.96.0.10:53       10.244.1.9:53                endpoint does not serve
sctp 10.96.0.10:53       10.244.1.3:53                endpoint does not serve
# from before the rules
udp  10.96.0.10:53       10.96.0.10:53                not translated
udp  10.96.0.11:53       10.96.0.11:53                not translated
udp  192.0.2.11:30053    192.0.2.11:30053             not translated
udp  192.0.2.11:30054    192.0.2.11:30054             not translated
tcp  10.96.0.10:53       10.96.0.10:53                not translated
sctp 10.96.0.10:53       10.96.0.10:53                not translated
# established: until the endpoint is gone, if at all
tcp  10.96.0.10:53       10.244.1.3:53  established   leads somewhere
tcp  10.96.0.10:53       10.244.1.9:53  established   leads somewhere / endpoint is gone
tcp  10.96.0.10:53       10.244.1.9:53  closing       leads somewhere
tcp  192.0.2.11:30053    10.244.1.9:53  established   leads somewhere / endpoint is gone
tcp  10.96.0.10:53       10.96.0.10:53  established   leads somewhere
sctp 10.96.0.10:53       10.244.1.3:53  established   leads somewhere
sctp 10.96.0.10:53       10.244.1.9:53  established   endpoint is gone
# not ours: no such port or protocol, another's address, another's NodePort
udp  10.96.0.10:54       10.244.1.9:53                leads somewhere
tcp  10.96.0.11:53       10.244.1.9:53                leads somewhere
udp  10.96.0.99:53       10.244.1.9:53                leads somewhere
udp  192.0.2.99:30053    192.0.2.99:30053             leads somewhere
udp  192.0.2.99:30053    10.244.1.9:53                leads somewhere
udp  127.0.0.1:30053     127.0.0.1:30053              leads somewhere
udp  192.0.2.11:53       192.0.2.11:53                leads somewhere
# seen by Open vSwitch before us; what is translated there was meant for us
udp  10.96.0.10:53       10.96.0.10:53  zone          leads somewhere
udp  10.96.0.10:53       10.244.1.9:53  zone          endpoint does not serve
# the Service "gone" was at 10.96.0.12 and NodePort 30055, with endpoint 10.244.1.4
udp  10.96.0.12:53       10.244.1.4:53                no such Service
udp  192.0.2.11:30055    10.244.1.4:53                no such Service
udp  10.96.0.12:53       10.244.1.9:53                leads somewhere
udp  10.96.0.12:53       10.96.0.12:53                leads somewhere
tcp  10.96.0.12:53       10.244.1.4:53                leads somewhere
`

// TestJudge: the table above; behind a slash stands what tcpReset changes.
func TestJudge(t *testing.T) {
	gone := empty()
	gone.Name.Name, gone.ClusterIPs = "gone", addrs("10.96.0.12")
	gone.Ports = []service.Port{{Protocol: service.UDP, Port: 53, NodePort: 30055, Endpoints: []service.Endpoint{{Addr: addrPort("10.244.1.4:53"), Ready: true}}}}
	indexes := map[service.Family]*Index{}
	for _, f := range []service.Family{service.IPv4, service.IPv6} {
		x := NewIndex(f)
		for _, s := range []*service.Service{dns(), empty(), gone} {
			x.Change(service.Change{New: s})
		}
		x.Change(service.Change{Old: gone})
		indexes[f] = x
	}
	lines := 0
	for line := range strings.Lines(judged) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		lines++
		at := strings.LastIndex(line, "  ")
		f := flow(t, line[:at])
		without, with, differs := strings.Cut(strings.TrimSpace(line[at:]), " / ")
		if !differs {
			with = without
		}
		family := service.FamilyOf(f.Orig.Dst.Addr())
		x, nodePorts := indexes[family], NodePortsOf(service.Node{}, family, local)
		for tcpReset, want := range map[bool]string{false: without, true: with} {
			if got := x.Judge(f, nodePorts, tcpReset).String(); got != want {
				t.Errorf("%s, tcpReset %v: %s", line, tcpReset, got)
			}
		}
	}
	if lines < 40 {
		t.Errorf("only %d lines", lines)
	}
	x := indexes[service.IPv4]
	x.Forget()
	if got := x.Judge(flow(t, "udp 10.96.0.12:53 10.244.1.4:53"), NodePorts{}, false); got != Leads {
		t.Errorf("after Forget: %v", got)
	}
}

// TestTwoServicesAtOneAddress: the older Service has it, and the other one takes over
// when it goes; then flows to endpoints of the former lead nowhere.
func TestTwoServicesAtOneAddress(t *testing.T) {
	older, younger := dns(), dns()
	younger.Name.Name, younger.Created, younger.ClusterIPs = "younger", time.Unix(2000, 0), addrs("10.96.0.20")
	younger.Ports = []service.Port{{Protocol: service.UDP, Port: 53, Endpoints: []service.Endpoint{{Addr: addrPort("10.244.2.1:53"), Ready: true}}}}
	x := NewIndex(service.IPv4)
	x.Change(service.Change{New: younger})
	x.Change(service.Change{New: older})
	first, second := flow(t, "udp 203.0.113.10:53 10.244.1.1:53"), flow(t, "udp 203.0.113.10:53 10.244.2.1:53")
	judge := func(f conntrack.Flow) Reason { return x.Judge(f, NodePorts{}, false) }
	if judge(first) != Leads || judge(second) != NotServing {
		t.Errorf("two Services: %v, %v", judge(first), judge(second))
	}
	x.Change(service.Change{Old: older})
	if judge(first) != NotServing || judge(second) != Leads {
		t.Errorf("the older one is gone: %v, %v", judge(first), judge(second))
	}
	x.Change(service.Change{Old: younger})
	if judge(first) != Leads || judge(second) != NoService {
		t.Errorf("both are gone: %v, %v", judge(first), judge(second))
	}
}

// TestNodePorts: where NodePorts answer.
func TestNodePorts(t *testing.T) {
	prefixes := func(list ...string) (out []netip.Prefix) {
		for _, p := range list {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	for _, c := range []struct {
		addresses service.NodePortAddresses
		has, not  []string
	}{
		{service.NodePortAddresses{}, []string{"192.0.2.11", "10.244.1.254", "2001:db8::11"}, []string{"127.0.0.1", "::1", "192.0.2.12"}},
		{service.NodePortAddresses{Localhost: true}, []string{"192.0.2.11", "127.0.0.1", "127.9.9.9"}, []string{"::1"}},
		{service.NodePortAddresses{Prefixes: prefixes("192.0.2.0/24"), Local: local}, []string{"192.0.2.11", "2001:db8::11"}, []string{"10.244.1.254", "127.0.0.1", "192.0.2.12"}},
		{service.NodePortAddresses{Prefixes: prefixes("127.0.0.0/8", "2001:db8::/64"), Local: local, Localhost: true}, []string{"127.0.0.1", "2001:db8::11"}, []string{"192.0.2.11", "::1"}},
		{service.NodePortAddresses{Prefixes: prefixes("0.0.0.0/0"), Local: local}, []string{"192.0.2.11"}, []string{"127.0.0.1"}},
	} {
		has := func(a netip.Addr) bool {
			f := service.FamilyOf(a)
			return NodePortsOf(service.Node{NodePorts: c.addresses}, f, local).Has(a)
		}
		for _, a := range addrs(c.has...) {
			if !has(a) {
				t.Errorf("%+v: not on %v", c.addresses, a)
			}
		}
		for _, a := range addrs(c.not...) {
			if has(a) {
				t.Errorf("%+v: on %v", c.addresses, a)
			}
		}
	}
}
