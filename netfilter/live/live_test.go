package live_test

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"portolan/internal/netnstest"
	"portolan/netfilter"
	"portolan/netfilter/live"
	"portolan/trace"
)

// namespace moves the test into a fresh network namespace of its own.
func namespace(t *testing.T) {
	t.Helper()
	netnstest.Enter(t)
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
}

func sh(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// setup makes one of each: devices, addresses, routes, rules of all kinds.
const setup = `
ip link set lo up
ip link add v0 type veth peer name v1
ip link add br0 type bridge
ip link set v1 master br0
ip addr add 192.0.2.1/24 dev v0
ip addr add 192.0.2.2/24 dev v0
ip addr add 10.244.0.1/24 dev br0
ip -6 addr add 2001:db8::1/64 dev v0 nodad
ip link set v0 up; ip link set v1 up; ip link set br0 up
ip route add default via 192.0.2.254
ip route add blackhole 10.99.0.0/16
ip route add 198.51.100.0/24 via 192.0.2.9 table 77
ip rule add fwmark 0x10/0xf0 lookup 77 priority 100
ip neigh add 192.0.2.254 lladdr 02:00:00:00:00:01 dev v0
echo 1 > /proc/sys/net/ipv4/ip_forward
iptables-legacy -A FORWARD -s 10.244.0.0/16 -j ACCEPT
iptables-nft -t nat -A PREROUTING -d 203.0.113.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.4:8080
ip6tables-legacy -A INPUT -p tcp --dport 22 -j DROP
`

// TestRead: what is set up by programs is read back, by the same types.
func TestRead(t *testing.T) {
	namespace(t)
	for _, p := range []string{"iptables-legacy", "iptables-nft", "ip"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no %s here", p)
		}
	}
	sh(t, setup)
	h, err := live.Read(t.Context(), live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if x := h.Table(netfilter.IPv4, netfilter.Legacy, "filter"); x == nil || x.RuleCount() != 1 {
		t.Errorf("legacy filter: %+v", x)
	}
	if x := h.Table(netfilter.IPv4, netfilter.NFT, "nat"); x == nil || x.RuleCount() != 1 {
		t.Errorf("nft nat: %+v", x)
	}
	if x := h.Table(netfilter.IPv6, netfilter.Legacy, "filter"); x == nil || x.RuleCount() != 1 {
		t.Errorf("legacy ip6 filter: %+v", x)
	}
	v0 := h.Interface("v0")
	if v0 == nil || v0.Kind != "veth" || len(v0.Addresses) < 3 || !v0.Addresses[1].Secondary {
		t.Errorf("v0: %+v", v0)
	}
	if v1 := h.Interface("v1"); v1 == nil || v1.Master != "br0" {
		t.Errorf("v1: %+v", v1)
	}
	if yes, sure := h.IsBridge("br0"); !yes || !sure {
		t.Error("br0 is a bridge")
	}
	if v, given := h.Sysctl("net.ipv4.ip_forward"); v != "1" || !given {
		t.Errorf("ip_forward %s %t", v, given)
	}
	fib := netfilter.NewFIB(h)
	for dst, want := range map[string]string{"8.8.8.8": "unicast v0", "10.99.1.1": "blackhole ", "192.0.2.1": "local v0", "10.244.0.7": "unicast br0", "2001:db8::9": "unicast v0", "127.3.2.1": "local lo", "192.0.2.255": "broadcast v0"} {
		r := fib.Lookup(netfilter.Question{Dst: netip.MustParseAddr(dst)})
		if got := r.Type.String() + " " + strings.TrimPrefix(r.Dev, "-"); got != want {
			t.Errorf("route to %s: %s, want %s", dst, got, want)
		}
	}
	if r := fib.Lookup(netfilter.Question{Dst: netip.MustParseAddr("198.51.100.7"), Mark: 0x1f}); r.Via.String() != "192.0.2.9" {
		t.Errorf("route by mark: %+v", r)
	}
	if len(h.Neighbours) == 0 || h.Neighbours[0].MAC == "" {
		t.Errorf("neighbours: %+v", h.Neighbours)
	}
	a := trace.New(h, trace.Options{}).Trace(trace.Flow{Src: netip.MustParseAddr("192.0.2.77"), Dst: netip.MustParseAddr("203.0.113.1"), DstPort: 80, Proto: netfilter.TCP})
	if o := a.Outcomes[0]; o.Verdict != trace.Forwarded || o.Dst.String() != "10.244.0.4" || o.DstPort != 8080 || !o.Certain {
		t.Errorf("%s to %s:%d: %s", o.Verdict, o.Dst, o.DstPort, o.Reason)
	}
}

// Reading an empty namespace creates no legacy table.
func TestReadTouchesNothing(t *testing.T) {
	namespace(t)
	if _, err := live.Read(t.Context(), live.Options{}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/thread-self/net/ip_tables_names")
	if err == nil && strings.TrimSpace(string(b)) != "" {
		t.Errorf("tables were created: %q", b)
	}
}
