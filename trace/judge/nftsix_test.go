package judge

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"portolan/netfilter"
)

// In IPv6 every address of the plan, a.b.c.d, is fd00::a.b.c.d, and a prefix
// is 96 bits longer. The loopback address is left out: ::1 never leaves a
// host.

// six is an IPv4 address of the plan in IPv6.
func six(a netip.Addr) netip.Addr {
	b, v4 := [16]byte{0: 0xfd}, a.As4()
	copy(b[12:], v4[:])
	return netip.AddrFrom16(b)
}

var (
	addressWord = regexp.MustCompile(`\b(\d+\.\d+\.\d+\.\d+)(/\d+)?(:\d+(?:-\d+)?)?`)
	// sixWords are the words that differ; longer ones stand first.
	sixWords = strings.NewReplacer(
		"ip saddr & 0.0.0.255 == 0.0.0.4", "", "ip daddr & 255.255.0.0 != 10.96.0.0", "", "ip hdrlength 5", "", "ip frag-off & 0x1fff 0", "", "127.0.0.0/8", "::1",
		"ip6 saddr fd00::/8", "meta nfproto ipv4", "ip6 daddr != fd00::1", "ip version 4", "ip6 nexthdr tcp", "ip protocol tcp", "icmpv6 type", "icmp type", "nfproto ipv4", "nfproto ipv6", "nfproto ipv6", "nfproto ipv4",
		"table ip ", "table ip6 ", "ipv4_addr", "ipv6_addr", "ip saddr", "ip6 saddr", "ip daddr", "ip6 daddr", "ip protocol", "ip6 nexthdr", "ip ttl", "ip6 hoplimit", "ip dscp", "ip6 dscp", "ip version 4", "ip6 version 6",
		"dnat ip ", "dnat ip6 ", "snat ip ", "snat ip6 ", "meta protocol ip", "meta protocol ip6", "@nh,72,8", "@nh,48,8", "@nh,128,32", "@nh,288,32",
		"icmp host-unreachable", "icmpv6 addr-unreachable", "icmp admin-prohibited", "icmpv6 admin-prohibited",
	)
)

// sixText writes a ruleset for IPv6.
func sixText(text string) string {
	return addressWord.ReplaceAllStringFunc(sixWords.Replace(text), func(s string) string {
		m := addressWord.FindStringSubmatch(s)
		a := six(netip.MustParseAddr(m[1])).String()
		if m[2] != "" {
			n, _ := strconv.Atoi(m[2][1:])
			return fmt.Sprintf("%s/%d", a, n+96)
		}
		if m[3] != "" {
			return "[" + a + "]" + m[3]
		}
		return a
	})
}

// addSix gives the node IPv6 beside IPv4, and opens the far ends for it.
func (w *world) addSix() (wires [3]*wire, local int) {
	t := w.t
	a := func(s string) string { return six(netip.MustParseAddr(s)).String() }
	var neighbours strings.Builder
	for dst, mac := range map[string]string{"172.22.15.253": "20", "172.22.7.90": "20", "172.22.7.200": "20", "10.244.0.4": "21", "10.244.0.9": "22", "10.244.0.12": "22"} {
		dev := "eth0"
		if strings.HasPrefix(dst, "10.") {
			dev = "cni0"
		}
		fmt.Fprintf(&neighbours, "ip -6 neigh replace %s lladdr 02:00:00:00:00:%s dev %s nud permanent\n", a(dst), mac, dev)
	}
	sh(t, `
cd /proc/sys/net/ipv6
for d in all default lo eth0 cni0; do echo 0 > conf/$d/disable_ipv6; echo 0 > conf/$d/accept_ra; echo 0 > conf/$d/accept_dad; done
echo 1 > conf/all/forwarding
echo 0 > icmp/ratelimit || true
for d in all default lo eth0 cni0; do echo 77 > conf/$d/hop_limit; done
ip -6 addr add %s/116 dev eth0 nodad
ip -6 addr add %s/120 dev cni0 nodad
ip -6 route add default via %s dev eth0
ip -6 route add %s/120 via %s dev eth0
%s
[ ! -e ../bridge/bridge-nf-call-ip6tables ] || echo 1 > ../bridge/bridge-nf-call-ip6tables
`, a(nodeAddr), a("10.244.0.1"), a("172.22.15.253"), a("10.244.1.0"), a("172.22.7.90"), neighbours.String())
	if err := netns.Set(w.far); err != nil {
		t.Fatal(err)
	}
	for i := range wires {
		wires[i] = openWireFor(t, fmt.Sprintf("w%d", i), unix.ETH_P_IPV6)
		wires[i].near = w.wires[i].near
		t.Cleanup(func() { unix.Close(wires[i].fd) })
	}
	if err := netns.Set(w.node); err != nil {
		t.Fatal(err)
	}
	local, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(local) })
	return wires, local
}

// sixBytes builds the packet in IPv6; its number is in the payload.
func (d datagram) sixBytes() []byte {
	n := 8
	if d.proto == netfilter.TCP {
		n = 20
	}
	b := make([]byte, 40+n+2)
	b[0], b[6], b[7] = 0x60, d.proto, 64
	binary.BigEndian.PutUint16(b[4:], uint16(n+2))
	src, dst := d.src.As16(), d.dst.As16()
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
	l4 := b[40:]
	binary.BigEndian.PutUint16(l4, d.sport)
	binary.BigEndian.PutUint16(l4[2:], d.dport)
	binary.BigEndian.PutUint16(l4[n:], d.id)
	sumAt := 6
	if d.proto == netfilter.TCP {
		l4[12], l4[13], l4[14] = 5<<4, d.flags, 0xff
		sumAt = 16
	} else {
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	}
	pseudo := append(append([]byte{}, b[8:40]...), 0, 0, 0, byte(len(l4)), 0, 0, 0, d.proto)
	binary.BigEndian.PutUint16(l4[sumAt:], checksum(append(pseudo, l4...), 0))
	return b
}

// parseSix reads a frame.
func parseSix(frame []byte) (d datagram, ok bool) {
	if len(frame) < 14+40+10 || frame[12] != 0x86 || frame[13] != 0xdd {
		return d, false
	}
	b := frame[14:]
	d.proto = b[6]
	if d.proto != netfilter.TCP && d.proto != netfilter.UDP {
		return d, false
	}
	d.src, _ = netip.AddrFromSlice(b[8:24])
	d.dst, _ = netip.AddrFromSlice(b[24:40])
	d.sport, d.dport = binary.BigEndian.Uint16(b[40:]), binary.BigEndian.Uint16(b[42:])
	d.id = binary.BigEndian.Uint16(b[len(b)-2:])
	return d, true
}

// sendSix puts a packet on a wire, or into the node's own stack.
func (j *nftJudge) sendSix(on int, d datagram, to net.HardwareAddr) error {
	if on < 0 {
		return unix.Sendto(j.local6, d.sixBytes(), 0, &unix.SockaddrInet6{Addr: d.dst.As16()})
	}
	x := j.wires6[on]
	if to == nil {
		to = x.near
	}
	frame := append(append(append([]byte{}, to...), x.mac...), 0x86, 0xdd)
	return unix.Sendto(x.fd, append(frame, d.sixBytes()...), 0, &unix.SockaddrLinklayer{Ifindex: x.index})
}

// TestKernelAgreesOnNFTSix is TestKernelAgreesOnNFT in IPv6.
func TestKernelAgreesOnNFTSix(t *testing.T) { judgeNFT(t, true) }
