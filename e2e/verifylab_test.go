package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"portolan/kernel/ipvs"
	"portolan/lab"
)

// broken is one thing that is wrong with a node: how it is broken, and all that
// verify finds then ("severity code object").
type broken struct {
	name  string
	mode  string // "" for any but that of not
	not   string // where more comes of it
	steps []string
	do    func(*cluster, *lab.Node) (undo func(), err error)
	undo  string // a command line, where the snapshot of the node does not do
	args  []string
	want  []string
}

// brokenLabs are nodes with one fault each. Steps are command lines; "IPTABLES" stands
// for the program of the variant.
var brokenLabs = []broken{
	{name: "a cluster IP is forgotten", mode: "iptables", steps: []string{"IPTABLES -t nat -D KUBE-SERVICES -d 10.96.0.15/32 -p tcp -m comment --comment|default/one:http cluster IP|-m tcp --dport 80 -j KUBE-SVC-4MCPEXSLZTSPBPTK"}, want: []string{"error frontend-missing default/one:http"}},
	{name: "a chain of an endpoint is emptied", mode: "iptables", steps: []string{"IPTABLES -t nat -F KUBE-SVC-4MCPEXSLZTSPBPTK"}, want: []string{"error frontend-missing default/one:http"}},
	{name: "nothing is masqueraded", mode: "iptables", steps: []string{"IPTABLES -t nat -F KUBE-MARK-MASQ"}, want: []string{"error masquerade-missing 7 of 8 Service ports"}},
	{name: "somebody flushed PREROUTING", mode: "iptables", steps: []string{"IPTABLES -t nat -F PREROUTING"}, want: []string{"error jump-missing nat PREROUTING"}},
	{name: "a hardening script drops what is forwarded", mode: "iptables", steps: []string{"IPTABLES -I FORWARD -d 10.244.2.0/24 -j DROP"}, want: []string{"error foreign-drop filter FORWARD rule 1"}},
	{name: "FORWARD drops by policy", mode: "iptables", steps: []string{"IPTABLES -P FORWARD DROP"}, want: []string{"error foreign-drop filter FORWARD policy"}},
	{name: "marks without a mask", mode: "iptables", steps: []string{"IPTABLES -t mangle -A FORWARD -i wg0 -j MARK --set-mark 0x1"}, want: []string{"warning mark-collision mangle FORWARD rule 1"}},
	{name: "the table of kube-proxy beside", mode: "iptables", do: besideKubeProxy, want: []string{"warning leftovers table ip kube-proxy"}},
	{name: "no NodePorts on loopback", mode: "iptables", steps: []string{"sysctl -qw net.ipv4.conf.all.route_localnet=0"}, want: []string{"error route-localnet-off net.ipv4.conf.all.route_localnet"}},
	{name: "an element is gone", mode: "nftables", steps: []string{"nft delete element ip portolan service-ips|{ 10.96.0.15 . tcp . 80 }"}, undo: "nft add element ip portolan service-ips|{ 10.96.0.15 . tcp . 80 : 8394:97d6 }", want: []string{"error frontend-missing default/one:http"}},
	{name: "an endpoint is gone", mode: "nftables", steps: []string{"nft delete element ip portolan eps-1|{ 10.96.0.15 . tcp . 80 . 0 }"}, undo: "nft add element ip portolan eps-1|{ 10.96.0.15 . tcp . 80 . 0 : 10.244.1.4 . 8080 }", want: []string{"error frontend-refused default/one:http"}},
	{name: "firewalld rejects", mode: "nftables", steps: []string{"nft add table inet firewalld", "nft add chain inet firewalld filter_FORWARD|{ type filter hook forward priority 10; }", "nft add rule inet firewalld filter_FORWARD ct state new ip daddr 10.244.2.0/24 reject with icmpx admin-prohibited"}, want: []string{"error foreign-drop inet firewalld filter_FORWARD rule 1"}},
	{name: "a virtual server is gone", mode: "ipvs", do: withoutServer, want: []string{"error frontend-missing default/one:http"}},
	{name: "a real server is gone", mode: "ipvs", do: withoutReal, want: []string{"error endpoint-missing default/web:http"}},
	{name: "an address is off the device", mode: "ipvs", steps: []string{"ip addr del 10.96.0.15/32 dev kube-ipvs0"}, undo: "ip addr add 10.96.0.15/32 dev kube-ipvs0", want: []string{"error frontend-missing default/one:http"}},
	{name: "an entry of a set is gone", mode: "ipvs", steps: []string{"ipset del KUBE-CLUSTER-IP 10.96.0.15,tcp:80"}, undo: "ipset add KUBE-CLUSTER-IP 10.96.0.15,tcp:80", want: []string{"error frontend-refused default/one:http"}},
	{name: "nothing of IPVS is masqueraded", mode: "ipvs", steps: []string{"IPTABLES -t nat -F KUBE-MARK-MASQ"}, want: []string{"error masquerade-missing 7 of 8 Service ports"}},
	{name: "a set entry of somebody else's", mode: "ipvs", steps: []string{"ipset add KUBE-NODE-PORT-TCP 31999"}, undo: "ipset del KUBE-NODE-PORT-TCP 31999", want: []string{"warning drift-foreign set/KUBE-NODE-PORT-TCP"}},
	{name: "a rule of somebody else's among ours", mode: "ipvs", steps: []string{"IPTABLES -t nat -A KUBE-SERVICES -s 203.0.113.9 -j RETURN"}, want: []string{"warning drift-foreign nat/KUBE-SERVICES"}},
	{name: "a rule is gone that no packet needs", mode: "ipvs", steps: []string{"IPTABLES -D KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP"}, want: []string{"warning drift-missing filter/KUBE-FORWARD"}},
	{name: "IPVS does not track", mode: "ipvs", steps: []string{"sysctl -qw net.ipv4.vs.conntrack=0"}, undo: "sysctl -qw net.ipv4.vs.conntrack=1", want: []string{"error ipvs-conntrack-off net.ipv4.vs.conntrack"}},
	{name: "the host does not forward", not: "ipvs", steps: []string{"sysctl -qw net.ipv4.ip_forward=0"}, want: []string{"error ip-forward-off net.ipv4.ip_forward"}},
	{name: "bridged packets are not seen", steps: []string{"sysctl -qw net.bridge.bridge-nf-call-iptables=0"}, want: []string{"error bridge-nf-off net.bridge.bridge-nf-call-iptables"}},
	{name: "no route to pods elsewhere", steps: []string{"ip route replace unreachable 10.244.2.0/24"}, want: []string{"error route-missing route to 10.244.2.7"}},
	{name: "local ports over NodePorts", steps: []string{"sysctl -qw|net.ipv4.ip_local_port_range=20000 60999"}, want: []string{"warning nodeport-local-port net.ipv4.ip_local_port_range"}},
	{name: "a cluster IP on the host", not: "ipvs", steps: []string{"ip addr add 10.96.0.15/32 dev lo"}, want: []string{"error address-taken 10.96.0.15"}},
	{name: "a process on a NodePort", do: listenOnNodePort, want: []string{"warning nodeport-listener tcp port 30080"}},
	{name: "the host is called otherwise", args: []string{"--hostname-override", "node1.example.com"}, want: []string{"error node-unknown host name node1.example.com"}},
}

// TestVerifyLabs: verify finds nothing on the nodes of a lab that is in order, in
// every mode, and on a node with one fault what names the cause, and nothing else.
func TestVerifyLabs(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		data, err := os.ReadFile("testdata/base/mutated.txtar")
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseScenario("labs", data)
		if err != nil {
			t.Fatal(err)
		}
		c := newCluster(t, b, s)
		ran := 0
		check := func(name, node string, x broken) {
			t.Helper()
			ran++
			got, err := c.findings(b, c.Node(node), x.args)
			if err != nil || !slices.Equal(got, x.want) {
				t.Errorf("%s: %s, %v; want %s", name, strings.Join(got, ", "), err, strings.Join(x.want, ", "))
			}
		}
		for _, n := range c.Nodes() {
			check("in order", n.Name, broken{})
		}
		for _, stop := range c.stops { // they would mend what is broken
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		node := c.Node("node1")
		for _, x := range brokenLabs {
			if x.mode != "" && x.mode != b.mode || x.not == b.mode {
				continue
			}
			restore, err := c.snapshotNode(b, node)
			if err != nil {
				t.Fatal(err)
			}
			undo, err := x.apply(c, node, b)
			if err != nil {
				t.Fatalf("%s: %v", x.name, err)
			}
			check(x.name, "node1", x)
			undo()
			if err := restore(); err != nil {
				t.Fatalf("after %s: %v", x.name, err)
			}
		}
		check("in order again", "node1", broken{})
		c.count("verify labs", ran)
	})
}

// apply breaks the node.
func (x broken) apply(c *cluster, n *lab.Node, b portolan) (undo func(), err error) {
	if x.do != nil {
		return x.do(c, n)
	}
	for _, step := range x.steps {
		if err := perform(c.t.Context(), n, b, step); err != nil {
			return nil, err
		}
	}
	if x.undo == "" {
		return func() {}, nil
	}
	return func() {
		if err := perform(c.t.Context(), n, b, x.undo); err != nil {
			c.t.Error(err)
		}
	}, nil
}

// perform runs a command line in a node; what is between bars is one word.
func perform(ctx context.Context, n *lab.Node, b portolan, line string) error {
	var words []string
	for i, part := range strings.Split(line, "|") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	if words[0] == "IPTABLES" {
		words[0] = "iptables"
	}
	if out, err := n.Command(ctx, b.variant, words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}

// findings runs verify in a node, against what the kernel holds there.
func (c *cluster) findings(b portolan, n *lab.Node, more []string) ([]string, error) {
	args := slices.Concat([]string{"verify", "--manifests", c.dir, "--hostname-override", n.Name, "--cluster-cidr", clusterCIDR(), "-o", "json"}, more)
	out, err := b.command(c.t.Context(), n, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var report struct {
		Findings []struct{ Code, Severity, Object, Actual string }
	}
	if err := json.Unmarshal(out[strings.IndexByte(string(out), '{'):], &report); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var list []string
	for _, f := range report.Findings {
		c.t.Logf("%s %s: %s", f.Code, f.Object, f.Actual)
		list = append(list, f.Severity+" "+f.Code+" "+strings.NewReplacer(" (legacy)", "", " (nft)", "").Replace(f.Object))
	}
	return list, nil
}

// snapshotNode keeps what the breaks change of a node.
func (c *cluster) snapshotNode(b portolan, n *lab.Node) (restore func() error, err error) {
	ctx := c.t.Context()
	saved, err := n.Command(ctx, b.variant, "iptables-save").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, saved)
	}
	settings := map[string]string{}
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet", "net/ipv4/ip_local_port_range", "net/bridge/bridge-nf-call-iptables"} {
		if settings[name], err = n.Sysctl(name); err != nil {
			return nil, err
		}
	}
	return func() error {
		var errs []error
		if b.mode != "nftables" {
			errs = append(errs, feed(ctx, n, b.variant, string(saved), "iptables-restore"))
		}
		if b.mode != "ipvs" { // whose kernel may be without nftables
			script := "add table ip kube-proxy\ndelete table ip kube-proxy\nadd table inet firewalld\ndelete table inet firewalld\n"
			errs = append(errs, feed(ctx, n, lab.HostVariant, script, "nft", "-f", "-"))
		}
		for name, value := range settings {
			out, err := n.Command(ctx, lab.HostVariant, "sysctl", "-qw", strings.ReplaceAll(name, "/", ".")+"="+value).CombinedOutput()
			if err != nil {
				errs = append(errs, fmt.Errorf("%w: %s", err, out))
			}
		}
		return errors.Join(append(errs, n.Do(mendNetwork))...)
	}, nil
}

// feed runs a program of a node with an input.
func feed(ctx context.Context, n *lab.Node, v lab.Variant, text, name string, args ...string) error {
	cmd := n.Command(ctx, v, name, args...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// mendNetwork takes away the address, and puts the route right.
func mendNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if addr, err := netlink.ParseAddr("10.96.0.15/32"); err == nil {
		_ = netlink.AddrDel(lo, addr) // which may not be there
	}
	_, pods, err := net.ParseCIDR("10.244.2.0/24")
	if err != nil {
		return err
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{Dst: pods, Gw: lab.NumberedNode(2).Addrs[0].AsSlice(), LinkIndex: eth0.Attrs().Index})
}

// besideKubeProxy adds kube-proxy's table of nftables mode, without its rules for
// what it does not know.
func besideKubeProxy(c *cluster, n *lab.Node) (func(), error) {
	text, err := os.ReadFile(filepath.Join("..", "testdata", "nft", "kube-proxy.nft"))
	if err != nil {
		return nil, err
	}
	table, _, _ := strings.Cut(string(text), "\ntable ip6 ")
	return func() {}, feed(c.t.Context(), n, lab.HostVariant, kubeProxyTable(table), "nft", "-f", "-")
}

// withoutServer takes the virtual server of a Service away.
func withoutServer(c *cluster, n *lab.Node) (undo func(), err error) {
	id := ipvs.ID{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("10.96.0.15:80")}
	return c.atServers(n, func(k *ipvs.Conn) error { return k.DeleteServer(id) }, func(k *ipvs.Conn) error {
		return errors.Join(k.AddServer(ipvs.Server{ID: id, Scheduler: "rr"}), k.AddReal(id, ipvs.Real{Addr: netip.MustParseAddrPort("10.244.1.4:8080"), Weight: 1}))
	})
}

// withoutReal takes one of the two real servers of a Service away.
func withoutReal(c *cluster, n *lab.Node) (undo func(), err error) {
	id := ipvs.ID{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("10.96.0.10:80")}
	far := netip.MustParseAddrPort("10.244.2.7:8080")
	return c.atServers(n, func(k *ipvs.Conn) error { return k.DeleteReal(id, far) }, func(k *ipvs.Conn) error {
		return k.AddReal(id, ipvs.Real{Addr: far, Weight: 1})
	})
}

// atServers changes virtual servers of a node; undo does the other thing.
func (c *cluster) atServers(n *lab.Node, change, back func(*ipvs.Conn) error) (undo func(), err error) {
	at := func(do func(*ipvs.Conn) error) error {
		return n.Do(func() error {
			k, err := ipvs.Dial()
			if err != nil {
				return err
			}
			defer k.Close()
			return do(k)
		})
	}
	return func() {
		if err := at(back); err != nil {
			c.t.Error(err)
		}
	}, at(change)
}

// listenOnNodePort has a process on 30080 of a node.
func listenOnNodePort(_ *cluster, n *lab.Node) (undo func(), err error) {
	err = n.Do(func() error {
		l, err := net.Listen("tcp4", "192.0.2.11:30080")
		undo = func() { l.Close() }
		return err
	})
	return undo, err
}
