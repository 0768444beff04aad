package judge

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"portolan/internal/netnstest"
	"portolan/netfilter"
)

// world is a node in a namespace with three wires: eth0 to everything
// outside, and two ports of the bridge cni0 to pods. The far ends are bare:
// packets are put on them and taken off them as frames, nothing answers.
type world struct {
	t     *testing.T
	node  netns.NsHandle
	far   netns.NsHandle // of the far ends of the wires
	wires [3]*wire       // outside, pod one, pod two
	local int            // raw socket of the node
}

// wire is the far end of one of the node's interfaces.
type wire struct {
	name  string
	fd    int
	index int
	mac   net.HardwareAddr // of the far end
	near  net.HardwareAddr // of the node's end, or of its bridge
}

const nodeAddr, podRange = "172.22.7.89", "10.244.0.0/16"

// pods are the pod addresses with the wire they are behind; those of another
// node are behind eth0.
var pods = map[string]int{"10.244.0.4": 1, "10.244.0.9": 2, "10.244.0.12": 2, "10.244.1.7": 0}

func sh(t *testing.T, format string, a ...any) {
	t.Helper()
	script := fmt.Sprintf(format, a...)
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// newWorld builds the namespaces; the test's goroutine stays in the node's.
func newWorld(t *testing.T) *world {
	t.Helper()
	for _, p := range []string{"ip", "bridge", "iptables-legacy-restore", "iptables-nft-restore"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no %s here", p)
		}
	}
	netnstest.Enter(t)
	far, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, local: -1, far: far}
	t.Cleanup(func() {
		for _, x := range w.wires {
			if x != nil {
				unix.Close(x.fd)
			}
		}
		unix.Close(w.local)
		far.Close()
		w.node.Close()
	})
	sh(t, "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done 2>/dev/null || true")
	if w.node, err = netns.New(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	w.build(far)
	return w
}

// nodeScript makes the interfaces, routes and sysctls of the node; %[1]s is the other
// namespace.
const nodeScript = `
for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done 2>/dev/null || true
ip link set lo up
ip link add cni0 address 02:00:00:00:10:01 type bridge mcast_snooping 0
ip link set cni0 up
ip link add eth0 address 02:00:00:00:00:10 type veth peer name w0 address 02:00:00:00:00:20 netns %[1]s
for i in 1 2; do
  ip link add port$i type veth peer name w$i address 02:00:00:00:00:2$i netns %[1]s
  ip link set port$i master cni0
  ip link set port$i up
  bridge link set dev port$i hairpin on
  bridge fdb replace 02:00:00:00:00:2$i dev port$i master static
done
ip link set eth0 up
for i in 0 1 2; do ip -n %[1]s link set w$i up; done
ip addr add 172.22.7.89/20 dev eth0
ip addr add 10.244.0.1/24 dev cni0
ip route add default via 172.22.15.253
ip route add 10.244.1.0/24 via 172.22.7.90
for a in 172.22.15.253 172.22.7.90 172.22.7.200; do ip neigh replace $a lladdr 02:00:00:00:00:20 dev eth0 nud permanent; done
ip neigh replace 10.244.0.4 lladdr 02:00:00:00:00:21 dev cni0 nud permanent
for a in 10.244.0.9 10.244.0.12; do ip neigh replace $a lladdr 02:00:00:00:00:22 dev cni0 nud permanent; done
cd /proc/sys/net
for f in ipv4/conf/*/send_redirects; do echo 0 > $f; done
echo 0 > ipv4/icmp_ratelimit
echo 1 > ipv4/ip_forward
echo 1 > ipv4/conf/all/route_localnet
for f in ipv4/conf/*/rp_filter; do echo 0 > $f; done
[ ! -e bridge/bridge-nf-call-iptables ] || echo 1 > bridge/bridge-nf-call-iptables
`

// build makes the node's interfaces. The far ends are moved to the other
// namespace, which only this process holds, by a file descriptor.
func (w *world) build(far netns.NsHandle) {
	t := w.t
	pin := filepath.Join("/run/netns", fmt.Sprintf("judge-%d", os.Getpid()))
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(pin)
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", int(far)), pin, "none", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot name a network namespace: %v", err)
	}
	defer unix.Unmount(pin, unix.MNT_DETACH)
	ns := filepath.Base(pin)
	sh(t, nodeScript, ns)
	if err := netns.Set(far); err != nil {
		t.Fatal(err)
	}
	for i := range w.wires {
		w.wires[i] = openWire(t, fmt.Sprintf("w%d", i))
		w.wires[i].near = net.HardwareAddr{2, 0, 0, 0, 0x10, 1}
	}
	w.wires[0].near = net.HardwareAddr{2, 0, 0, 0, 0, 0x10}
	if err := netns.Set(w.node); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.local, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW); err != nil {
		t.Fatal(err)
	}
}

func openWire(t *testing.T, name string) *wire {
	t.Helper()
	return openWireFor(t, name, unix.ETH_P_IP)
}

// openWireFor takes and gives frames of one protocol.
func openWireFor(t *testing.T, name string, protocol uint16) *wire {
	t.Helper()
	in, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	all := int(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol)))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, all)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: in.Index}); err != nil {
		t.Fatal(err)
	}
	return &wire{name: name, fd: fd, index: in.Index, mac: in.HardwareAddr}
}

// datagram is a packet as it is sent or seen.
type datagram struct {
	src, dst     netip.Addr
	sport, dport uint16
	proto        uint8
	flags        uint8
	id           uint16
}

func checksum(b []byte, sum uint32) uint16 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// bytes builds the IP packet.
func (d datagram) bytes() []byte {
	n := 20 + 8
	if d.proto == netfilter.TCP {
		n = 20 + 20
	}
	b := make([]byte, n)
	b[0], b[8], b[9] = 0x45, 64, d.proto
	binary.BigEndian.PutUint16(b[2:], uint16(n))
	binary.BigEndian.PutUint16(b[4:], d.id)
	copy(b[12:], d.src.AsSlice())
	copy(b[16:], d.dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], checksum(b[:20], 0))
	l4 := b[20:]
	binary.BigEndian.PutUint16(l4, d.sport)
	binary.BigEndian.PutUint16(l4[2:], d.dport)
	sumAt := 6
	if d.proto == netfilter.TCP {
		l4[12], l4[13], l4[14] = 5<<4, d.flags, 0xff
		sumAt = 16
	} else {
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	}
	pseudo := append(append([]byte{}, b[12:20]...), 0, d.proto, 0, byte(len(l4)))
	sum := checksum(append(pseudo, l4...), 0)
	binary.BigEndian.PutUint16(l4[sumAt:], sum)
	return b
}

// parse reads a frame.
func parse(frame []byte) (d datagram, ok bool) {
	if len(frame) < 14+28 || frame[12] != 8 || frame[13] != 0 || frame[14]>>4 != 4 {
		return d, false
	}
	b := frame[14:]
	d.proto, d.id = b[9], binary.BigEndian.Uint16(b[4:])
	d.src, _ = netip.AddrFromSlice(b[12:16])
	d.dst, _ = netip.AddrFromSlice(b[16:20])
	d.sport, d.dport = binary.BigEndian.Uint16(b[20:]), binary.BigEndian.Uint16(b[22:])
	return d, true
}

// send puts a packet on a wire, or into the node's own stack for wire -1. to
// is the MAC address for frames, nil for the node.
func (w *world) send(on int, d datagram, to net.HardwareAddr) error {
	b := d.bytes()
	if on < 0 {
		return unix.Sendto(w.local, b, 0, &unix.SockaddrInet4{Addr: d.dst.As4()})
	}
	x := w.wires[on]
	if to == nil {
		to = x.near
	}
	frame := append(append(append([]byte{}, to...), x.mac...), 8, 0)
	return unix.Sendto(x.fd, append(frame, b...), 0, &unix.SockaddrLinklayer{Ifindex: x.index})
}

// toward is the link address that a shot is sent to, nil for the node's.
func (w *world) toward(s shot) net.HardwareAddr {
	if via, ok := pods[s.dst]; ok && s.wire > 0 && via > 0 {
		return w.wires[via].mac // same subnet: straight to the other pod
	}
	return nil
}

// arrivals takes what has come out of the node with an id, by wire, from frames that
// reads reads.
func arrivals(wires [3]*wire, reads func(frame []byte) (datagram, bool), id uint16) (wire int, d datagram, n int) {
	buf := make([]byte, 2048)
	wire = -1
	for i, x := range wires {
		for {
			m, from, err := unix.Recvfrom(x.fd, buf, 0)
			if err != nil {
				break
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if p, ok := reads(buf[:m]); ok && p.id == id {
				wire, d, n = i, p, n+1
			}
		}
	}
	return wire, d, n
}

// restore loads rules with one variant's program.
func (w *world) restore(variant netfilter.Variant, rules string) error {
	cmd := exec.Command("iptables-"+variant.String()+"-restore", "-w")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// flush empties all tables of a variant.
func (w *world) flush(variant netfilter.Variant) error {
	var b strings.Builder
	for _, table := range netfilter.TableNames {
		b.WriteString("*" + table + "\n")
		for _, h := range netfilter.TableHooks(table) {
			b.WriteString(":" + h.ChainName() + " ACCEPT [0:0]\n")
		}
		b.WriteString("COMMIT\n")
	}
	return w.restore(variant, b.String())
}
