package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"portolan/lab"
)

// The faults are those of a node; while one lasts, clients call a Service that does
// not change all the time. After it, what changed meanwhile is in force.

// beginFault starts a cluster, and clients of the Service "still".
func beginFault(t *testing.T, b portolan, args ...string) (*cluster, *callers) {
	s := changeScenario()
	s.args = append(args, "--iptables-min-sync-period", "20ms")
	c := newCluster(t, b, s)
	return c, c.stillCallers()
}

func (c *cluster) stillCallers() *callers {
	return c.callers(patience, route{"client", "198.51.100.249:80"}, route{"pod:visitor", "10.96.3.90:80"}, route{"pod:visitor", "[fd00:96::35a]:80"})
}

// change makes a Service that was not there, with an address of its own.
func (c *cluster) change(number int, pod string) string {
	m := manifest{name: fmt.Sprintf("change-%d", number), kind: "clusterip", policy: "Cluster", port: 80,
		cluster: pair("10.96.6.%d", "fd00:96::6%02x", number)}
	c.apply(map[string][]byte{m.name + ".yaml": m.with(pod).yaml()})
	return netip.AddrPortFrom(m.cluster[0], 80).String()
}

// says waits until the proxy of a node has said something.
func (c *cluster) says(node, text string) error {
	return eventually(func() error {
		if !c.logs[node].Has(text) {
			return fmt.Errorf("the proxy of %s does not say %q", node, text)
		}
		return nil
	})
}

// unhurt ends a fault: nothing failed, and the rules are what is wanted.
func (c *cluster) unhurt(what string, clients *callers) {
	c.t.Helper()
	if err := c.inForceOn(c.Node("node1")); err != nil {
		c.t.Errorf("%s: %v", what, err)
	}
	clients.stop()
	clients.over.Wait()
	failed := 0
	for _, n := range clients.failed {
		failed += n
	}
	c.t.Logf("%s: %s", what, clients.report())
	if failed > 0 {
		c.t.Errorf("%s: %d calls to a Service that did not change failed", what, failed)
	}
	c.count("restart", 1)
}

// TestLockHeld: while another program holds the lock of iptables, writes fail and say
// so; what is in force stays, and soon after the lock is free the change is too.
func TestLockHeld(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		if b.variant != lab.Legacy {
			t.Skip("only iptables-legacy takes the lock")
		}
		c, clients := beginFault(t, b)
		lock, err := os.OpenFile(filepath.Join(c.Dir(), "xtables.node1"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		held := time.Now()
		address := c.change(1, "a")
		if err := c.says("node1", "xtables lock"); err != nil {
			t.Error(err)
		}
		if o := c.try(c.host("pod:visitor"), lab.Call{Proto: "tcp", To: netip.MustParseAddrPort(address), Timeout: silence}); o.Verdict == lab.Answered {
			t.Errorf("the change is in force without the lock: %v", o)
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
			t.Fatal(err)
		}
		free := time.Now()
		if err := c.settlesFrom("pod:visitor", address, "answered a"); err != nil {
			t.Error(err)
		}
		t.Logf("held for %v, the change in force %v later", free.Sub(held).Round(time.Millisecond), time.Since(free).Round(time.Millisecond))
		c.unhurt("lock held", clients)
	})
}

// TestOneServiceRefused: of a write with a Service whose rules iptables does not take,
// all others are programmed, and the one is named; when its rules are taken after
// all, it is programmed too.
func TestOneServiceRefused(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		if b.mode != "iptables" {
			t.Skip("no Service is known whose elements the kernel refuses; TestRefusedElement of kernel/nft makes one up")
		}
		b.shims = t.TempDir()
		mended := filepath.Join(b.shims, "mended")
		b.shimRestore(t, fmt.Sprintf(refusingScript, mended))
		c, clients := beginFault(t, b, "--iptables-sync-period", "1s")
		names := []string{c.change(1, "a"), c.change(2, "x"), c.change(3, "b")}
		for i, want := range []string{"answered a", "unreachable", "answered b"} {
			if err := c.settlesFrom("pod:visitor", names[i], want); err != nil {
				t.Error(err)
			}
		}
		if err := c.says("node1", "service=default/change-2"); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(mended, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := c.settlesFrom("pod:visitor", names[1], "answered x"); err != nil {
			t.Error(err)
		}
		c.unhurt("one Service refused", clients)
	})
}

// refusingScript refuses the rules of one Service, as iptables-restore says it, until
// a file is there.
const refusingScript = `
input=$(mktemp)
trap 'rm -f "$input"' EXIT
cat >"$input"
line=$(grep -n default/change-2 "$input" | head -n 1 | cut -d: -f1)
if [ -n "$line" ] && [ ! -e %s ]; then
	echo "iptables-restore: line $line failed" >&2
	exit 1
fi
restore "$@" <"$input"
`

// shimRestore puts a script in front of iptables-restore of both families; "restore"
// is the program itself there.
func (p portolan) shimRestore(t *testing.T, script string) {
	t.Helper()
	for _, family := range families {
		text := fmt.Sprintf("#!/bin/sh\nrestore() { xtables-%s-multi %s-restore \"$@\"; }\n%s", p.variant, family, script)
		for _, name := range []string{family + "-restore", family + "-" + string(p.variant) + "-restore"} {
			if err := os.WriteFile(filepath.Join(p.shims, name), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestEndedWhileItWrites: a proxy that is told to end in the middle of a write brings
// it to its end, and leaves the rules.
func TestEndedWhileItWrites(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		if b.mode != "iptables" {
			t.Skip("a transaction of nftables is one call of the kernel, which nothing interrupts")
		}
		b.shims = t.TempDir()
		begun := filepath.Join(b.shims, "begun")
		b.shimRestore(t, fmt.Sprintf(slowScript, begun))
		c, clients := beginFault(t, b)
		proxy := c.relaunch(t, "node1")
		address := c.change(1, "a")
		if err := awaitFile(begun + "-node1"); err != nil {
			t.Fatal(err)
		}
		proxy.end(false)
		if code := proxy.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if o := c.try(c.host("pod:visitor"), lab.Call{Proto: "tcp", To: netip.MustParseAddrPort(address), Timeout: patience}); o.Pod != "a" {
			t.Errorf("after its end: %v", o)
		}
		c.unhurt("ended while it wrote", clients)
	})
}

// slowScript takes its time for a Service, and says on which node it begins with its
// IPv4 address. The lock file of a host ends with its name; see lab.Host.Command.
const slowScript = `
input=$(mktemp)
trap 'rm -f "$input"' EXIT
cat >"$input"
if grep -q default/change-1 "$input"; then
	if grep -q 10.96.6.1 "$input"; then : >"%s-${XTABLES_LOCKFILE##*.}"; fi
	sleep 1
fi
restore "$@" <"$input"
`

func awaitFile(name string) error {
	return eventually(func() error {
		_, err := os.Stat(name)
		return err
	})
}
