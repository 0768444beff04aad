package judge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan/e2e/program"
	"portolan/lab"
	"portolan/netfilter"
	"portolan/netfilter/live"
)

// The hosts of the world. node1 is the one that is judged; node2 has no rules and
// its pods are endpoints elsewhere. Visitors are pods behind no Service.
const (
	judged    = "node1"
	other     = "node2"
	outside   = "client"
	visitor   = "visitor-1"
	stranger2 = "visitor-2"
)

var (
	podsHere  = []string{"here-1", "here-2", "here-3", "here-4"}
	podsThere = []string{"there-1", "there-2"}
	podPorts  = []uint16{8080, 5353}
)

// moreClients are further addresses of the outside client.
var moreClients = []netip.Addr{netip.MustParseAddr("192.0.2.201"), netip.MustParseAddr("192.0.2.202"), netip.MustParseAddr("2001:db8::201")}

// world is a lab whose hosts answer nothing by themselves, so that only what a rule
// does comes back, with the kernel's rule trace of the judged node.
type world struct {
	*lab.Lab
	variant  lab.Variant
	node     *lab.Node
	stations map[string]*station
	ports    map[string]string // pod -> its port on the bridge
	devices  map[int]string    // interfaces of the judged node
	trace    tracer
	events   int      // so far
	others   []event  // of packets that are no probes, such as errors about them
	servers  []server // of the judged node
	binary   string
	dir      string
}

func topology() lab.Topology {
	t := lab.Topology{Nodes: []lab.NodeSpec{lab.NumberedNode(1), lab.NumberedNode(2)}, Routes: lab.RoutesVia(judged)}
	t.Client = append(append(t.Client, lab.ClientAddrs...), moreClients...)
	for i, name := range append(append([]string(nil), podsHere...), visitor) {
		t.Pods = append(t.Pods, lab.NumberedPod(name, 1, i+1, podPorts...))
	}
	for i, name := range append(append([]string(nil), podsThere...), stranger2) {
		t.Pods = append(t.Pods, lab.NumberedPod(name, 2, i+1, podPorts...))
	}
	return t
}

func newWorld(t *testing.T, v lab.Variant) *world {
	t.Helper()
	l, err := lab.New(topology())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Lab: l, variant: v, node: l.Node(judged), stations: map[string]*station{}, ports: map[string]string{}, devices: map[int]string{}, binary: tested, dir: t.TempDir()}
	t.Cleanup(func() { w.end(t) })
	if err := w.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) open(ctx context.Context) error {
	hosts := map[string]*lab.Host{outside: w.Client, judged: &w.node.Host, other: &w.Node(other).Host}
	for _, list := range [][]string{podsHere, podsThere, {visitor, stranger2}} {
		for _, name := range list {
			hosts[name] = &w.Pod(name).Host
		}
	}
	for name, h := range hosts {
		s, err := newStation(name, h)
		if err != nil {
			return err
		}
		w.stations[name] = s
		if name != judged {
			if err := w.silence(ctx, h); err != nil {
				return err
			}
		}
	}
	return errors.Join(w.findDevices(), w.acquaint(), w.serve())
}

// quietRules drop what is for the host itself, after packet sockets saw it and but
// for what finds neighbours.
const quietRules = `*raw
-A PREROUTING -i lo -j ACCEPT
%s
-A PREROUTING -m addrtype --dst-type LOCAL -j DROP
COMMIT
`

const neighbourRules = `-A PREROUTING -p ipv6-icmp -m icmp6 --icmpv6-type 135 -j ACCEPT
-A PREROUTING -p ipv6-icmp -m icmp6 --icmpv6-type 136 -j ACCEPT`

func (w *world) silence(ctx context.Context, h *lab.Host) error {
	extra4, extra6 := "", neighbourRules
	if h.Name == other {
		// What it gets and is not for its pods it would send back.
		extra4 += "-A PREROUTING -i eth0 ! -d 10.244.2.0/24 -j DROP"
		extra6 += "\n-A PREROUTING -i eth0 ! -d fd00:244:2::/64 -j DROP"
	}
	if err := w.restore(ctx, h, netfilter.IPv4, fmt.Sprintf(quietRules, extra4)); err != nil {
		return err
	}
	return w.restore(ctx, h, netfilter.IPv6, fmt.Sprintf(quietRules, extra6))
}

// restore feeds rules to iptables-restore, which keeps what else there is.
func (w *world) restore(ctx context.Context, h *lab.Host, f netfilter.Family, rules string) error {
	program := "iptables-restore"
	if f == netfilter.IPv6 {
		program = "ip6tables-restore"
	}
	cmd := h.Command(ctx, w.variant, program, "--noflush")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("judge: %s in %s: %w: %s\n%s", program, h.Name, err, out, blamed(string(out), rules))
	}
	return nil
}

// blamed is the line that a complaint is about.
func blamed(complaint, rules string) string {
	_, number, _ := strings.Cut(complaint, "line: ")
	n := 0
	fmt.Sscan(number, &n)
	if list := strings.Split(rules, "\n"); n > 0 && n <= len(list) {
		return list[n-1]
	}
	return rules
}

// findDevices learns the interfaces of the judged node, and which bridge port leads
// to which pod.
func (w *world) findDevices() error {
	err := w.node.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			w.devices[l.Attrs().Index] = l.Attrs().Name
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("judge: interfaces of %s: %w", judged, err)
	}
	for _, name := range append(append([]string(nil), podsHere...), visitor) {
		err := w.Pod(name).Do(func() error {
			link, err := netlink.LinkByName("eth0")
			if err == nil {
				w.ports[name] = w.devices[link.Attrs().ParentIndex]
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("judge: interface of %s: %w", name, err)
		}
	}
	return nil
}

// serve opens sockets of the judged node that get what is delivered to it, behind
// the last hook and whether or not anybody listens on the port.
func (w *world) serve() error {
	return w.node.Do(func() error {
		for _, kind := range []struct{ family, proto int }{
			{unix.AF_INET, unix.IPPROTO_TCP}, {unix.AF_INET, unix.IPPROTO_UDP}, {unix.AF_INET, unix.IPPROTO_ICMP},
			{unix.AF_INET6, unix.IPPROTO_TCP}, {unix.AF_INET6, unix.IPPROTO_UDP}, {unix.AF_INET6, unix.IPPROTO_ICMPV6},
		} {
			fd, err := unix.Socket(kind.family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, kind.proto)
			if err != nil {
				return fmt.Errorf("judge: socket for what is delivered: %w", err)
			}
			w.servers = append(w.servers, server{fd, kind.family == unix.AF_INET6, uint8(kind.proto)})
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, roomy); err != nil {
				return err
			}
		}
		return nil
	})
}

// server is a socket for one protocol of one family.
type server struct {
	fd    int
	six   bool // without an IP header
	proto uint8
}

// drain gives the probes that were delivered since the last call.
func (s server) drain(add func(sighting)) (some bool, err error) {
	buffer := make([]byte, 256)
	for {
		n, from, err := unix.Recvfrom(s.fd, buffer, 0)
		if errors.Is(err, unix.EAGAIN) {
			return some, nil
		}
		if err != nil {
			return some, fmt.Errorf("judge: what is delivered: %w", err)
		}
		got := sighting{proto: s.proto}
		if s.six {
			got.readBody(buffer[:n])
			if a, is := from.(*unix.SockaddrInet6); is {
				got.src = netip.AddrFrom16(a.Addr)
			}
		} else {
			got = read(buffer[:n])
		}
		if got.role == itself {
			some = true
			add(got)
		}
	}
}

func (w *world) end(t *testing.T) {
	if w.trace != nil {
		w.trace.close()
	}
	for _, s := range w.stations {
		s.close()
	}
	for _, s := range w.servers {
		unix.Close(s.fd)
	}
	if err := w.Lab.Close(); err != nil {
		t.Error(err)
	}
}

// watch puts the TRACE rules in front of all others and listens to what they bring.
// Rules must not change any more.
func (w *world) watch(ctx context.Context) (err error) {
	const rules = "*raw\n-I PREROUTING -j TRACE\n-I OUTPUT -j TRACE\nCOMMIT\n"
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if err := w.restore(ctx, &w.node.Host, f, rules); err != nil {
			return err
		}
	}
	if w.variant == lab.Legacy {
		w.trace, err = newLegacyTrace(&w.node.Host)
	} else {
		w.trace, err = newNFTTrace(&w.node.Host)
	}
	return err
}

// read gives the judged node as the reading half sees it.
func (w *world) read(ctx context.Context) (h *netfilter.Host, err error) {
	err = w.node.Do(func() (err error) {
		h, err = live.Read(ctx, live.Options{NoFlows: true})
		return err
	})
	return h, err
}

// sysctl sets a value of the judged node.
func (w *world) sysctl(path, value string) error {
	return w.node.Do(func() error { return os.WriteFile("/proc/sys/"+path, []byte(value), 0) })
}

// run runs a program in the judged node.
func (w *world) run(ctx context.Context, name string, args ...string) error {
	if out, err := w.node.Command(ctx, w.variant, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("judge: %s %v: %w: %s", name, args, err, out)
	}
	return nil
}

// program lets the real binary write the rules of the manifests, and ends it: the
// rules stay.
func (w *world) program(ctx context.Context, manifests []byte, args []string) error {
	if err := os.WriteFile(filepath.Join(w.dir, "services.yaml"), manifests, 0o644); err != nil {
		return err
	}
	log := &program.Log{}
	cmd := w.node.Command(ctx, w.variant, w.binary, append([]string{"proxy", "--manifests", w.dir, "--hostname-override", judged}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	err := said(log, cmd.Done(), "msg=synced family=IPv4", "msg=synced family=IPv6")
	cmd.Process.Signal(syscall.SIGTERM)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("judge: proxy of %s: %w\n%s", judged, err, log)
	}
	return nil
}

// said waits until a proxy has said all texts. Its health server cannot be asked:
// foreign rules may keep the node from talking to itself.
func said(log *program.Log, ended <-chan struct{}, texts ...string) error {
	deadline := time.After(time.Minute)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		if !slices.ContainsFunc(texts, func(t string) bool { return !log.Has(t) }) {
			return nil
		}
		select {
		case <-ended:
			return errors.New("it ended before it had synced")
		case <-deadline:
			return errors.New("it did not sync")
		case <-look.C:
		}
	}
}
