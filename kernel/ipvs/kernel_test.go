package ipvs

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan/internal/netnstest"
)

// inNamespace moves the test to a network namespace of its own, whose thread ends
// with the test.
func inNamespace(t *testing.T) *Conn {
	t.Helper()
	netnstest.Enter(t)
	c, err := Dial()
	if errors.Is(err, ErrMissing) {
		t.Skipf("%v; make e2e-ipvs has one that does", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func server(protocol Protocol, addr string) Server {
	return Server{ID: ID{protocol, netip.MustParseAddrPort(addr)}, Scheduler: "rr"}
}

// TestServers: the kernel lists servers and real servers as they were written.
func TestServers(t *testing.T) {
	c := inNamespace(t)
	list := []Server{
		server(TCP, "10.96.0.1:443"), server(UDP, "10.96.0.10:53"), server(SCTP, "10.96.0.11:9"), server(TCP, "[fd00:96::1]:443"),
	}
	list[1].Scheduler, list[1].Flags = "mh", SchedulerPort
	list[2].Persistence = 3 * time.Hour
	list[3].Scheduler, list[3].Persistence = "wlc", 10*time.Second
	for _, s := range list {
		if err := c.AddServer(s); err != nil {
			t.Fatal(err)
		}
		if err := c.AddServer(s); !errors.Is(err, unix.EEXIST) {
			t.Errorf("twice: %v", err)
		}
	}
	check := func() {
		t.Helper()
		got, err := c.Servers()
		slices.SortFunc(got, func(a, b Server) int { return a.ID.Compare(b.ID) })
		if err != nil || !slices.Equal(got, list) {
			t.Fatalf("%+v, %v\nwant %+v", got, err, list)
		}
	}
	check()
	list[0].Scheduler, list[0].Persistence = "lc", time.Minute
	list[2].Persistence = 0
	for _, s := range list {
		if err := c.SetServer(s); err != nil {
			t.Fatal(err)
		}
	}
	check()
	if err := c.DeleteServer(list[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteServer(list[0].ID); !errors.Is(err, unix.ESRCH) {
		t.Errorf("twice: %v", err)
	}
	list = list[1:]
	check()
	odd := server(TCP, "10.96.0.3:80")
	odd.Scheduler = "none-such"
	if err := c.AddServer(odd); !errors.Is(err, unix.ENOENT) {
		t.Errorf("an unknown scheduler: %v", err)
	}
}

// Real servers come, change their weight and go.
func TestReals(t *testing.T) {
	c := inNamespace(t)
	anywhere(t)
	for vip, reals := range map[string][]string{"10.96.0.1:443": {"10.244.1.2:6443", "10.244.2.2:6443"}, "[fd00:96::1]:443": {"[fd00:244::2]:6443"}} {
		s := server(TCP, vip)
		if got, err := c.Reals(s.ID); len(got) > 0 || err != nil {
			t.Errorf("of a server that is not there: %v, %v", got, err)
		}
		if err := c.AddServer(s); err != nil {
			t.Fatal(err)
		}
		for i, text := range reals {
			r := Real{Addr: netip.MustParseAddrPort(text), Weight: uint32(i + 1)}
			if err := c.AddReal(s.ID, r); err != nil {
				t.Fatal(err)
			}
			if err := c.AddReal(s.ID, r); !errors.Is(err, unix.EEXIST) {
				t.Errorf("twice: %v", err)
			}
			r.Weight = 0
			if err := c.SetReal(s.ID, r); err != nil {
				t.Fatal(err)
			}
			got, err := c.Reals(s.ID)
			if err != nil || len(got) != i+1 || !slices.Contains(got, r) {
				t.Fatalf("%+v, %v, want %+v among them", got, err, r)
			}
		}
		for _, text := range reals {
			if err := c.DeleteReal(s.ID, netip.MustParseAddrPort(text)); err != nil {
				t.Fatal(err)
			}
			if err := c.DeleteReal(s.ID, netip.MustParseAddrPort(text)); !errors.Is(err, unix.ENOENT) {
				t.Errorf("twice: %v", err)
			}
		}
	}
}

// anywhere gives the namespace routes to everything: without one the kernel takes no
// real server.
func anywhere(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	for _, to := range []string{"0.0.0.0/0", "::/0"} {
		if err == nil {
			_, dst, _ := net.ParseCIDR(to)
			err = netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A time-out of 0 leaves what is set.
func TestTimeouts(t *testing.T) {
	c := inNamespace(t)
	before, err := c.Timeouts()
	if err != nil {
		t.Fatal(err)
	}
	want := Timeouts{TCP: 600 * time.Second, TCPFin: before.TCPFin, UDP: 30 * time.Second}
	if err := c.SetTimeouts(Timeouts{TCP: want.TCP, UDP: want.UDP}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Timeouts(); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// TestDevice: its addresses are local to the host, in both families.
func TestDevice(t *testing.T) {
	inNamespace(t)
	d, err := OpenDevice("kube-ipvs0")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, exists, err := d.Addresses(false); exists || err != nil {
		t.Fatal(exists, err)
	}
	if err := d.Add(netip.MustParseAddr("10.96.0.1")); err == nil {
		t.Error("an address of a device that is not there")
	}
	for range 2 {
		if err := d.Ensure(); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"10.96.0.1", "fd00:96::1"} {
		a := netip.MustParseAddr(text)
		for range 2 {
			if err := d.Add(a); err != nil {
				t.Fatal(err)
			}
		}
		got, exists, err := d.Addresses(a.Is6())
		if !exists || err != nil || !slices.Equal(got, []netip.Addr{a}) {
			t.Errorf("%v, %v", got, err)
		}
		if fd, err := bindTo(a); err != nil {
			t.Errorf("%v is not local: %v", a, err)
		} else {
			unix.Close(fd)
		}
		for range 2 {
			if err := d.Remove(a); err != nil {
				t.Fatal(err)
			}
		}
	}
	if was, err := d.Delete(); !was || err != nil {
		t.Error(was, err)
	}
	if was, err := d.Delete(); was || err != nil {
		t.Error(was, err)
	}
}

func bindTo(a netip.Addr) (int, error) {
	family, to := unix.AF_INET, unix.Sockaddr(nil)
	if a.Is4() {
		to = &unix.SockaddrInet4{Addr: a.As4()}
	} else {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, err
	}
	return fd, unix.Bind(fd, to)
}
