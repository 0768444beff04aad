package localhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"portolan/service"
)

const insideVariable = "PORTOLAN_TEST_INSIDE"

// TestMain runs the tests in a network namespace of their own, in which nobody has
// the ports that they use. Where there is none to be had, those with sockets skip.
func TestMain(m *testing.M) {
	if os.Getenv(insideVariable) != "" {
		if lo, err := netlink.LinkByName("lo"); err != nil || netlink.LinkSetUp(lo) != nil {
			fmt.Println("localhost: no loopback in the namespace:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		os.Exit(m.Run())
	}
	if err := cmd.Wait(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			os.Exit(exit.ExitCode())
		}
		fmt.Println("localhost:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// patience bounds waits that are over at once on a quiet machine.
const patience = 20 * time.Second

// place is a family's addresses: a Port of each protocol, and two endpoints.
type place struct {
	family   string
	tcp, udp netip.AddrPort
	a, b     netip.AddrPort
}

var places = []place{
	{"IPv4", netip.MustParseAddrPort("127.0.0.1:30080"), netip.MustParseAddrPort("127.0.0.1:30053"), netip.MustParseAddrPort("127.0.0.11:8080"), netip.MustParseAddrPort("127.0.0.12:8080")},
	{"IPv6", netip.MustParseAddrPort("[::1]:30080"), netip.MustParseAddrPort("[::1]:30053"), netip.MustParseAddrPort("[::1]:8081"), netip.MustParseAddrPort("[::1]:8082")},
}

func eachPlace(t *testing.T, test func(*testing.T, place)) {
	if os.Getenv(insideVariable) == "" {
		t.Skip("no network namespace is to be had for real ports")
	}
	for _, p := range places {
		t.Run(p.family, func(t *testing.T) { test(t, p) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await asks until something is so: nobody tells when a kernel's socket has come so far.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for start := time.Now(); !so(); time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// echo answers TCP: its name, then what it hears, then its name again once the
// caller has said all.
func echo(t *testing.T, at netip.AddrPort, name string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at.String())
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprint(c, name)
				io.Copy(c, c)
				fmt.Fprint(c, name)
			}()
		}
	}()
	return l
}

// open opens a Port, with endpoints.
func open(t *testing.T, ctx context.Context, at netip.AddrPort, protocol service.Protocol, most int, endpoints ...netip.AddrPort) *opened {
	t.Helper()
	c := &carrier{log: slog.New(slog.DiscardHandler), sessions: newSessions(most)}
	o := &opened{picker: &picker{target: Target{Endpoints: endpoints}}}
	var err error
	o.listener, err = c.listen(ctx, Port{at, protocol}, o.picker)
	must(t, err)
	t.Cleanup(o.close)
	return o
}

func (o *opened) lead(endpoints ...netip.AddrPort) {
	o.picker.set(Target{Endpoints: endpoints})
	o.retarget()
}

// caller is a connection to a Port.
type caller struct {
	net.Conn
	t *testing.T
}

func call(t *testing.T, network string, to netip.AddrPort) caller {
	t.Helper()
	c, err := net.Dial(network, to.String())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(patience)))
	return caller{c, t}
}

func (c caller) hears(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		c.t.Fatalf("heard %q and %v, want %q", got, err, want)
	}
}

func (c caller) says(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// ends tells how a connection ends, by what is heard last.
func (c caller) ends(want error) {
	c.t.Helper()
	if rest, err := io.ReadAll(c); !errors.Is(err, want) || len(rest) > 0 {
		c.t.Errorf("ends with %q and %v, want %v", rest, err, want)
	}
}

func TestTCP(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		echo(t, p.a, "a")
		second := echo(t, p.b, "b")
		port := open(t, ctx, p.tcp, service.TCP, 1, p.a)

		old := call(t, "tcp", p.tcp)
		old.hears("a")
		old.says("hello")
		old.hears("hello")

		port.lead(p.b) // live connections stay where they are
		call(t, "tcp", p.tcp).hears("b")
		old.says("still")
		old.hears("still")
		must(t, old.Conn.(*net.TCPConn).CloseWrite()) // and may end by halves
		old.hears("a")
		old.ends(nil)

		waiting := call(t, "tcp", p.tcp)
		waiting.hears("b")
		must(t, second.Close()) // an endpoint that does not answer
		if c, err := net.Dial("tcp", p.tcp.String()); err == nil {
			_, err = io.ReadAll(c)
			c.Close()
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("with an endpoint that does not answer: %v", err)
			}
		} else if !errors.Is(err, syscall.ECONNRESET) { // so soon that connect hears of it
			t.Errorf("with an endpoint that does not answer: %v", err)
		}

		port.close() // connections go on
		waiting.says("x")
		waiting.hears("x")
		if _, err := net.Dial("tcp", p.tcp.String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after it was closed: %v", err)
		}
		stop() // until all ends
		waiting.ends(syscall.ECONNRESET)
	})
}

// A reset by the endpoint reaches the caller.
func TestReset(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l, err := net.Listen("tcp", p.a.String())
		must(t, err)
		defer l.Close()
		open(t, t.Context(), p.tcp, service.TCP, 1, p.a)
		c := call(t, "tcp", p.tcp)
		endpoint, err := l.Accept()
		must(t, err)
		must(t, endpoint.(*net.TCPConn).SetLinger(0))
		must(t, endpoint.Close())
		c.ends(syscall.ECONNRESET)
	})
}

// answer answers UDP with its name and what it heard.
func answer(t *testing.T, at netip.AddrPort, name string) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, mostBytes)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			conn.WriteToUDPAddrPort(append([]byte(name), buf[:n]...), from)
		}
	}()
	return conn
}

// asks sends datagrams until one is answered: a first one may be lost with the
// session that it ended.
func (c caller) asks(text, want string) {
	c.t.Helper()
	buf := make([]byte, mostBytes)
	for start := time.Now(); ; {
		c.says(text)
		must(c.t, c.SetReadDeadline(time.Now().Add(time.Second)))
		n, err := c.Read(buf)
		if err == nil && string(buf[:n]) == want {
			return
		}
		if time.Since(start) > patience {
			c.t.Fatalf("%q is answered by %q and %v, want %q", text, buf[:n], err, want)
		}
	}
}

func TestUDP(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		answer(t, p.a, "a")
		answer(t, p.b, "b")
		port := open(t, t.Context(), p.udp, service.UDP, 2, p.a)
		udp := port.listener.(*udpListener)
		clients := func() int {
			udp.mu.Lock()
			defer udp.mu.Unlock()
			return len(udp.clients)
		}

		one := call(t, "udp", p.udp)
		one.asks("x", "ax")
		port.lead(p.a, p.b) // its endpoint is still one
		for range 20 {
			one.asks("y", "ay")
		}
		long := string(make([]byte, 60_000))
		one.asks(long, "a"+long)
		port.lead(p.b) // and no more
		one.asks("z", "bz")

		for range 8 { // each ends the one of longest ago
			call(t, "udp", p.udp).asks("n", "bn")
		}
		await(t, "no session more than two", func() bool { return clients() <= 2 })
		one.asks("again", "bagain")

		port.close()
		if n := clients(); n != 0 {
			t.Errorf("%d sessions after it was closed", n)
		}
	})
}

// What somebody else has is refused, and what he frees is there in the end.
func TestTaken(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		taken, err := net.Listen("tcp", p.tcp.String())
		must(t, err)
		echo(t, p.a, "a")
		s := New(slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		s.Publish((&service.Snapshot{}).With(node(), []*service.Service{nodePort("a", 30080, nil, p.a.String())}, nil))
		family := service.FamilyOf(p.a.Addr())
		await(t, "a port that is taken is refused", func() bool { return s.State(family).Refused > 0 })
		must(t, taken.Close())
		await(t, "it is opened", func() bool { return s.State(family).Listeners > 0 })
		call(t, "tcp", p.tcp).hears("a")
		stop()
		<-done
	})
}
