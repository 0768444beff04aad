package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"portolan/lab"
)

// inMounts runs the program in a mount namespace of its own, which a script arranges.
func inMounts(script string) []string {
	return []string{"unshare", "--mount", "sh", "-ec", script + "\nexec \"$0\" \"$@\""}
}

// TestDiskFull: with no room for any file in /run and for temporary files, a proxy
// starts; where iptables cannot make its lock file it says so, the rules of the last
// one stay, and it goes on when there is room.
func TestDiskFull(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		full := b
		full.around = inMounts(`
			mount -t tmpfs -o size=4k,nr_inodes=2 none /run
			: >/run/filler
			export TMPDIR=/run XTABLES_LOCKFILE=/run/xtables.lock`)
		c, clients := beginFault(t, b)
		n := c.Node("node1")
		if err := c.stops[n.Name](); err != nil {
			t.Fatal(err)
		}
		address := c.change(1, "a")
		cmd := full.command(t.Context(), n, slices.Concat([]string{"proxy"}, full.sources(n, c.dir), c.scenario.args)...)
		cmd.Stdout, cmd.Stderr = c.logs[n.Name], c.logs[n.Name]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		proxy := &running{Cmd: cmd}
		c.stops[n.Name] = func() error { proxy.end(false); return nil }
		if b.variant == lab.Legacy {
			if err := c.says(n.Name, "No space left on device"); err != nil {
				t.Error(err)
			}
			free := n.Command(t.Context(), lab.HostVariant, "nsenter", "--mount", "--target", strconv.Itoa(cmd.Process.Pid), "rm", "/run/filler")
			if out, err := free.CombinedOutput(); err != nil {
				t.Fatalf("make room: %v: %s", err, out)
			}
		}
		if err := healthy(t.Context(), n, cmd); err != nil {
			t.Fatal(err)
		}
		if err := c.settlesFrom("pod:visitor", address, "answered a"); err != nil {
			t.Error(err)
		}
		c.unhurt("disk full", clients)
	})
}

// TestReadOnlyKernelFiles: where nothing in /proc and /sys can be written, that is
// said, and Services are served.
func TestReadOnlyKernelFiles(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c, clients := beginFault(t, b)
		n := c.Node("node1")
		b.around = inMounts(`
			for dir in /proc /sys; do
				mount --bind $dir $dir
				mount -o remount,bind,ro $dir
			done`)
		c.backend = b
		c.relaunch(t, n.Name)
		address := c.change(1, "a")
		if err := c.settlesFrom("pod:visitor", address, "answered a"); err != nil {
			t.Error(err)
		}
		if err := c.says(n.Name, "read-only file system"); err != nil {
			t.Error(err)
		}
		c.unhurt("/proc and /sys read-only", clients)
	})
}

// TestAddressesAndLinks: node ports follow the addresses of the node, and all is as it
// was when an interface was down for a moment.
func TestAddressesAndLinks(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c, clients := beginFault(t, b, "--nodeport-addresses", "192.0.2.0/24,2001:db8::/64")
		n := c.Node("node1")
		ip := func(words ...string) string {
			t.Helper()
			out, err := n.Command(t.Context(), lab.HostVariant, "ip", words...).CombinedOutput()
			if err != nil {
				t.Fatalf("ip %v: %v: %s", words, err, out)
			}
			return string(out)
		}
		for _, family := range []struct{ prefix, port string }{{"192.0.2.77/24", "192.0.2.77:31900"}, {"2001:db8::77/64", "[2001:db8::77]:31900"}} {
			ip("address", "add", family.prefix, "dev", "eth0", "nodad")
			if err := c.served(family.port); err != nil {
				t.Errorf("%s added: %v", family.prefix, err)
			}
			ip("address", "del", family.prefix, "dev", "eth0")
			if err := c.inForceOn(n); err != nil {
				t.Errorf("%s removed: %v", family.prefix, err)
			}
		}
		c.unhurt("an address comes and goes", clients)

		clients = c.callers(silence, route{"client", "198.51.100.249:80"}, route{"pod:visitor", "10.96.3.90:80"}, route{"node1", "[fd00:96::35a]:80"})
		whole := c.state(t, n)
		if err := n.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv6/conf/eth0/keep_addr_on_down", []byte("1"), 0o644)
		}); err != nil {
			t.Fatal(err)
		}
		routes := map[string]string{}
		for _, family := range []string{"-4", "-6"} {
			routes[family] = ip(family, "route", "show", "dev", "eth0")
		}
		ip("link", "set", "eth0", "down")
		ip("link", "set", "eth0", "up")
		for family, list := range routes { // as whoever set them up does
			for line := range strings.Lines(list) {
				words := strings.Fields(line)
				if i := slices.Index(words, "proto"); i >= 0 && words[i+1] == "kernel" {
					continue
				}
				ip(slices.Concat([]string{family, "route", "replace"}, words, []string{"dev", "eth0"})...)
			}
		}
		if err := clients.calm(); err != nil {
			t.Error(err)
		}
		clients.stop()
		t.Logf("interface down and up: %s", clients.report())
		if _, err := c.returnsTo(t, n, whole); err != nil {
			t.Error(err)
		}
	})
}

// served waits until somebody answers the client at an address.
func (c *cluster) served(address string) error {
	to := netip.MustParseAddrPort(address)
	return eventually(func() error {
		if o := c.try(c.Client, lab.Call{Proto: "tcp", To: to, Timeout: silence}); o.Verdict != lab.Answered {
			return fmt.Errorf("client to %s: %v", address, o)
		}
		return nil
	})
}

// TestMemoryLimit: in a control group with little memory, the proxy keeps to it
// through many Services and changes.
func TestMemoryLimit(t *testing.T) {
	const limit = 160 << 20
	eachBackend(t, func(t *testing.T, b portolan) {
		group, err := memoryGroup(t, limit)
		if err != nil {
			t.Skipf("no control group for memory can be made here: %v", err)
		}
		c, clients := beginFault(t, b)
		b.around = []string{"sh", "-ec", "echo $$ >" + filepath.Join(group, "cgroup.procs") + "\nexec \"$0\" \"$@\""}
		c.backend = b
		c.apply(map[string][]byte{"many.yaml": manyServices(2000)})
		proxy := c.relaunch(t, "node1")
		if err := c.says("node1", fmt.Sprintf("bytes=%d", limit/5*4)); err != nil {
			t.Error(err)
		}
		var address string
		for i := range 20 {
			address = c.change(1+i, "a")
		}
		if err := c.settlesFrom("pod:visitor", address, "answered a"); err != nil {
			t.Error(err)
		}
		select {
		case <-proxy.Done():
			t.Error("the proxy did not live through it")
		default:
		}
		c.unhurt("little memory", clients)
	})
}

// memoryGroup makes a control group below the one of this process, v2 or v1.
func memoryGroup(t *testing.T, limit int) (string, error) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	file, parent := "", ""
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case fields[1] == "memory":
			file, parent = "memory.limit_in_bytes", "/sys/fs/cgroup/memory"+fields[2]
		case fields[0] == "0" && file == "":
			if controllers, err := os.ReadFile("/sys/fs/cgroup" + fields[2] + "/cgroup.subtree_control"); err == nil && strings.Contains(string(controllers), "memory") {
				file, parent = "memory.max", "/sys/fs/cgroup"+fields[2]
			}
		}
	}
	if file == "" {
		return "", fmt.Errorf("this process is in none that it can divide")
	}
	group, err := os.MkdirTemp(parent, "portolan-e2e-")
	if err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	return group, os.WriteFile(filepath.Join(group, file), []byte(strconv.Itoa(limit)), 0o644)
}

// manyServices are ClusterIPs with two endpoints each.
func manyServices(n int) []byte {
	var b strings.Builder
	for i := range n {
		addr := netip.AddrFrom4([4]byte{10, 96, byte(16 + i/250), byte(1 + i%250)})
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: many-%d, namespace: default}\nspec: {clusterIP: %v, clusterIPs: [%v], ipFamilies: [IPv4], ports: [{port: 80, protocol: TCP}]}\n", i, addr, addr)
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: many-%d, namespace: default, labels: {kubernetes.io/service-name: many-%d}}\naddressType: IPv4\nports: [{name: \"\", protocol: TCP, port: 8080}]\n", i, i)
		fmt.Fprintf(&b, "endpoints: [{addresses: [10.244.1.11], conditions: {ready: true}}, {addresses: [10.244.2.11], conditions: {ready: true}}]\n")
	}
	return []byte(b.String())
}
