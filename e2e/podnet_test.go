package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan/lab"
)

// What document 004 shows of two nodes, with the lab's addresses in the place of
// its own: routes, neighbours and forwarding entries, and the source
// address that pods see.
func TestPodNetworkOfDocument004(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, backend := range []string{"vxlan", "host-gw"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			p := newPodNet(t, 2)
			p.configure(backend, 1, 2)
			p.start("node1")
			p.start("node2")
			p.settle()
			source := "10.244.1.0"
			if backend == "vxlan" {
				p.wants("node1", "ip route", "10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink", "10.244.1.0/24 dev cni0")
				p.wants("node1", "ip -6 route", "fd00:244:2::/64 via fd00:244:2:: dev flannel-v6.1")
				p.wants("node1", "ip neigh show dev flannel.1", "10.244.2.0 lladdr 02:00:00:00:04:02 PERMANENT")
				p.wants("node1", "bridge fdb show dev flannel.1", "02:00:00:00:04:02 dst 192.0.2.12 self permanent")
			} else {
				source = "192.0.2.11"
				p.wants("node1", "ip route", "10.244.2.0/24 via 192.0.2.12 dev eth0", "10.244.1.0/24 dev cni0")
				p.wants("node1", "ip -6 route", "fd00:244:2::/64 via 2001:db8::12 dev eth0")
			}
			for _, from := range []*lab.Host{&p.Pod("pod-1-1").Host, &p.Node("node1").Host} {
				for _, like := range p.Pod("pod-2-1").Addrs {
					o := from.Dial("tcp", netip.AddrPortFrom(like, 8080), 5*time.Second)
					if want := from.Addr(like); o.Verdict != lab.Answered || from.Name != "node1" && o.Seen.Addr() != want || from.Name == "node1" && like.Is4() && o.Seen.Addr().String() != source {
						t.Errorf("%s to %s: %s", from.Name, like, o)
					}
				}
			}
			p.masquerades("pod-1-1", "192.0.2.11")
			did.add("podnet", count{scenarios: 1, flows: 5, packets: p.Packets()})
		})
	}
}

// masquerades has a pod call the outside client, which sees the pod's node.
func (p *podNet) masquerades(pod, node string) {
	p.t.Helper()
	var server net.PacketConn
	err := p.Client.Do(func() (err error) {
		server, err = net.ListenPacket("udp4", ":9")
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	defer server.Close()
	if err := server.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		p.t.Fatal(err)
	}
	_ = p.Pod(pod).Dial("udp", netip.AddrPortFrom(p.Client.Addrs[0], 9), time.Millisecond) // nobody answers
	_, from, err := server.ReadFrom(make([]byte, 100))
	if err != nil || !strings.HasPrefix(from.String(), node+":") {
		p.t.Errorf("%s calls out and is seen as %v (%v), want %s", pod, from, err, node)
	}
}

// The outer packet: UDP to 8472, VNI 1, 50 bytes more than the inner one;
// 1450 bytes pass and 1451 are refused.
func TestVXLANOnTheWire(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := newPodNet(t, 2)
	p.configure("vxlan", 1, 2)
	p.start("node1")
	p.start("node2")
	p.settle()
	wire := p.listen("node2")
	defer syscall.Close(wire)
	to := netip.AddrPortFrom(p.Pod("pod-2-1").Addrs[0], 8080)
	err := p.Pod("pod-1-1").Do(func() error {
		c, err := net.Dial("udp4", to.String())
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			return err
		}
		var set error
		if err := raw.Control(func(fd uintptr) {
			set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_DO)
		}); err != nil || set != nil {
			return errors.Join(err, set)
		}
		if _, err := c.Write(make([]byte, 1450-28)); err != nil {
			return fmt.Errorf("1450 bytes: %w", err)
		}
		if _, err := c.Write(make([]byte, 1451-28)); !errors.Is(err, syscall.EMSGSIZE) {
			return fmt.Errorf("1451 bytes: %v, want that they are too long", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	for {
		n, _, err := syscall.Recvfrom(wire, buffer, 0)
		if err != nil {
			t.Fatalf("no packet of 1450 bytes in vxlan came by: %v", err)
		}
		if got, ok := outer(buffer[:n]); ok && got.inner == 1450 {
			want := outerPacket{src: netip.MustParseAddr("192.0.2.11"), dst: netip.MustParseAddr("192.0.2.12"), port: 8472, flags: 8, vni: 1, length: 1500, inner: 1450}
			if got != want {
				t.Errorf("on the wire: %+v, want %+v", got, want)
			}
			break
		}
	}
	did.add("podnet", count{scenarios: 1, flows: 2, packets: p.Packets()})
}

// listen opens a packet socket on a node's eth0; reading from it ends after a while.
func (p *podNet) listen(node string) (fd int) {
	p.t.Helper()
	err := p.Node(node).Do(func() error {
		var err error
		if fd, err = syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM, 0x0008); err != nil { // ETH_P_IP, network order
			return err
		}
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: 0x0008, Ifindex: eth0.Index}),
			syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 10}))
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return fd
}

type outerPacket struct {
	src, dst      netip.Addr
	port          int
	flags         byte
	vni           int
	length, inner int // of the IP packets, bytes
}

// outer reads an IPv4 packet that carries vxlan with an IPv4 packet in it (RFC 7348).
func outer(b []byte) (outerPacket, bool) {
	const udp, vxlan, ethernet, inner = 20, 28, 36, 50
	if len(b) < inner+20 || b[0] != 0x45 || b[9] != syscall.IPPROTO_UDP {
		return outerPacket{}, false
	}
	two := func(at int) int { return int(b[at])<<8 | int(b[at+1]) }
	src, dst := netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	p := outerPacket{src: src, dst: dst, port: two(udp + 2), flags: b[vxlan], vni: two(vxlan+4)<<8 | int(b[vxlan+6]), length: two(2), inner: two(inner + 2)}
	return p, b[inner]>>4 == 4 && two(ethernet+12) == 0x0800
}

// What others break is right again, a node that went while nobody looked leaves
// nothing, and the other backend takes over without a route twice.
func TestPodNetworkRepair(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := newPodNet(t, 3)
	p.configure("vxlan", 1, 2, 3)
	for _, n := range p.Nodes() {
		p.start(n.Name)
	}
	p.settle()
	for what, command := range map[string]string{
		"device deleted":           "ip link del flannel.1",
		"IPv6 device deleted":      "ip link del flannel-v6.1",
		"routes flushed":           "ip route flush dev flannel.1",
		"forwarding entry removed": "bridge fdb del 02:00:00:00:04:02 dev flannel.1 dst 192.0.2.12",
		"masquerade flushed":       "iptables -t nat -F",
	} {
		p.run("node1", strings.Fields(command)...)
		began := time.Now()
		p.settle()
		t.Logf("%s: reached again after %v", what, time.Since(began).Round(time.Millisecond))
	}
	p.until("iptables -t nat -S", func(out string) bool {
		return strings.Count(out, "-A FLANNEL-POSTRTG ") == 6 && strings.Count(out, "-j FLANNEL-POSTRTG") == 1
	})
	p.outlivesItsAgent()
	p.becomesHostGateway()
	p.isCleanedUp()
	did.add("podnet", count{scenarios: 1, flows: 8, packets: p.Packets()})
}

// outlivesItsAgent has a node go while nobody looks.
func (p *podNet) outlivesItsAgent() {
	p.t.Helper()
	p.stop("node1")
	if out := p.run("node1", "ip", "route"); !strings.Contains(out, "10.244.2.0/24 via") {
		p.t.Errorf("the end of the agent took routes away:\n%s", out)
	}
	p.configure("vxlan", 1, 2)
	p.start("node1")
	if out := p.run("node1", "ip", "route"); strings.Contains(out, "10.244.3.0/24") {
		p.t.Errorf("a node that went is still there:\n%s", out)
	}
}

func (p *podNet) becomesHostGateway() {
	p.t.Helper()
	p.configure("host-gw", 1, 2, 3)
	for _, n := range p.Nodes() {
		p.stop(n.Name)
	}
	for _, n := range p.Nodes() {
		p.start(n.Name)
	}
	p.settle()
	out := p.run("node1", "ip", "route")
	if strings.Count(out, "10.244.2.0/24") != 1 || strings.Contains(p.run("node1", "ip", "link"), "flannel") {
		p.t.Errorf("after the switch to host-gw:\n%s", out)
	}
	if text, err := os.ReadFile(filepath.Join(p.dir, "node1.env")); err != nil || !strings.Contains(string(text), "FLANNEL_SUBNET=10.244.1.1/24\n") || !strings.Contains(string(text), "FLANNEL_MTU=1500\n") {
		p.t.Errorf("subnet.env: %v %s", err, text)
	}
}

func (p *podNet) isCleanedUp() {
	p.t.Helper()
	p.configure("vxlan", 1, 2)
	p.stop("node1")
	p.start("node1")
	p.stop("node1")
	p.run("node1", binary, "podnet", "--cleanup", "--net-config-path", filepath.Join(p.dir, "net-conf.json"), "--iface", "eth0", "--ip-masq", "--subnet-file", filepath.Join(p.dir, "node1.env"))
	left := p.run("node1", "ip", "route") + p.run("node1", "ip", "link") + p.run("node1", "iptables-save")
	for _, word := range []string{"10.244.2.0/24", "flannel", "FLANNEL"} {
		if strings.Contains(left, word) {
			p.t.Errorf("cleanup left %s:\n%s", word, left)
		}
	}
}
