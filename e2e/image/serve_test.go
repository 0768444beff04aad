package image

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan/e2e/program"
	"portolan/lab"
)

const patience = 30 * time.Second

// services are a Node of the lab and a Service with a pod of it.
const services = `apiVersion: v1
kind: Node
metadata: {name: node1}
spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24, "fd00:244:1::/64"]}
status: {addresses: [{type: InternalIP, address: 192.0.2.11}, {type: InternalIP, address: "2001:db8::11"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10, "fd00:96::10"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  ports:
  - {name: tcp, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30080}
  - {name: udp, protocol: UDP, port: 80, targetPort: 8080, nodePort: 30080}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-4, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: tcp, protocol: TCP, port: 8080}, {name: udp, protocol: UDP, port: 8080}]
endpoints: [{addresses: [10.244.1.11], nodeName: node1, conditions: {ready: true}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-6, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{name: tcp, protocol: TCP, port: 8080}, {name: udp, protocol: UDP, port: 8080}]
endpoints: [{addresses: ["fd00:244:1::11"], nodeName: node1, conditions: {ready: true}}]
`

// modes are the ways to program a node, with the least rights for each.
var modes = []struct {
	name, mode string
	uses       lab.Variant
	least      []int
}{
	{"iptables-legacy", "iptables", lab.Legacy, []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW}},
	{"iptables-nft", "iptables", lab.NFT, []int{unix.CAP_NET_ADMIN}},
	{"nftables", "nftables", lab.NFT, []int{unix.CAP_NET_ADMIN}},
}

// The DaemonSet's container, made of the image's files only and with the rights that
// the manifest asks for and no others, serves packets in every mode, and so does one
// with no more than what the mode needs.
func TestPodServes(t *testing.T) {
	needsRoot(t)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m.uses)
			w.serves(w.pod(m.mode))
		})
		t.Run(m.name+", least rights", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m.uses)
			c := w.pod(m.mode)
			c.Capabilities = m.least
			w.serves(c)
		})
	}
}

// The container that comes before the proxy in deploy/sysctls sets what the proxy then
// finds as it is to be, so that it has nothing to complain about.
func TestSysctls(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	w := newWorld(t, lab.NFT)
	pod := w.pod("iptables")
	init := daemonSet(t, "../../deploy/sysctls/daemonset.yaml").Spec.Template.Spec.InitContainers[0]
	spec := daemonSet(t, "../../deploy/base/daemonset.yaml").Spec.Template.Spec
	before := podOf(t, spec, init, "node1", nil)
	before.Mounts = pod.Mounts
	if out, err := before.command(t, w.node).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for file, want := range map[string]string{"net/ipv4/conf/all/route_localnet": "1", "net/netfilter/nf_conntrack_tcp_timeout_established": "86400"} {
		if got, err := w.node.Sysctl(file); err != nil || strings.TrimSpace(got) != want {
			t.Errorf("%s is %s, wanted %s (%v)", file, got, want, err)
		}
	}
	if log := w.serves(pod); strings.Contains(log, "level=WARN") {
		t.Errorf("the proxy said:\n%s", log)
	}
}

// In the image, kubeadm's command finds the program, which knows what it is then.
func TestKubeProxyByName(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	w := newWorld(t, lab.NFT)
	c := container{Root: root, ReadOnly: true, Args: []string{"/usr/local/bin/kube-proxy", "--config=/nowhere"}}
	out, err := c.command(t, w.node).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "/nowhere") || strings.Contains(string(out), "unknown") {
		t.Errorf("%v\n%s", err, out)
	}
}

// What verify, trace and dump list on a node in ipvs mode, the image can list.
func TestSetsAreListed(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	w := newWorld(t, lab.NFT)
	if out, err := w.node.Command(t.Context(), lab.HostVariant, "ipset", "create", "KUBE-CLUSTER-IP", "hash:ip,port").CombinedOutput(); err != nil {
		t.Fatalf("ipset create: %v\n%s", err, out)
	}
	c := w.pod("iptables")
	c.Args = []string{"/usr/sbin/ipset", "save"}
	if out, err := c.command(t, w.node).CombinedOutput(); err != nil || !strings.Contains(string(out), "create KUBE-CLUSTER-IP hash:ip,port") {
		t.Errorf("ipset save: %v\n%s", err, out)
	}
}

// Legacy iptables is what NET_RAW is for.
func TestLegacyNeedsNetRaw(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	w := newWorld(t, lab.Legacy)
	c := w.pod("iptables")
	c.Capabilities = []int{unix.CAP_NET_ADMIN}
	cmd := c.command(t, w.node)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "iptables-legacy") {
		t.Errorf("without NET_RAW: %v\n%s", err, out)
	}
}

// world is a lab of node1 with the pod a.
type world struct {
	*lab.Lab
	t    *testing.T
	node *lab.Node
}

// newWorld makes a node on which others use a variant of iptables, and further nodes.
func newWorld(t *testing.T, v lab.Variant, nodes ...lab.NodeSpec) world {
	t.Helper()
	l, err := lab.New(lab.Topology{
		Nodes:  append([]lab.NodeSpec{lab.NumberedNode(1)}, nodes...),
		Pods:   []lab.PodSpec{lab.NumberedPod("a", 1, 1, 8080)},
		Client: lab.ClientAddrs,
		Routes: lab.RoutesVia("node1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	w := world{l, t, l.Node("node1")}
	for _, program := range []string{"iptables", "ip6tables"} { // as kubelet does
		if out, err := w.node.Command(t.Context(), v, program, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return w
}

// pod is the DaemonSet's container, which reads Services from files here; config is
// added to its configuration.
func (w world) pod(mode string, config ...string) container {
	w.t.Helper()
	spec := daemonSet(w.t, "../../deploy/base/daemonset.yaml").Spec.Template.Spec
	options := "---\napiVersion: portolan.io/v1alpha1\nkind: ProxyOptions\nmanifests: [/etc/portolan/services]\n"
	return podOf(w.t, spec, spec.Containers[0], "node1", map[string]string{"config.conf": w.config(mode) + strings.Join(config, "") + options, "services/web.yaml": services})
}

// config is that of deploy/base for a mode.
func (w world) config(mode string) string {
	w.t.Helper()
	text, err := os.ReadFile("../../deploy/base/config.conf")
	if err != nil {
		w.t.Fatal(err)
	}
	score, err := os.ReadFile("/proc/self/oom_score_adj") // a kubelet would have set it
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.NewReplacer(`mode: ""`, fmt.Sprintf("mode: %q", mode), "oomScoreAdj: -997", "oomScoreAdj: "+string(score)).Replace(string(text)) +
		"conntrack: {maxPerCore: 0, min: 0}\n" + // the sizes are the whole machine's
		"nodePortAddresses: [all, localhost]\n"
}

// serves starts a container, calls its Service, does more if that is asked for, and
// stops it. It returns its log.
func (w world) serves(c container, more ...func()) string {
	w.t.Helper()
	cmd := c.command(w.t, w.node)
	log := &program.Log{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.node.AwaitOK(ctx, "http://127.0.0.1:10256/healthz", cmd.Done()); err != nil {
		w.t.Fatalf("%v\n%s", err, log)
	}
	if got, want := rights(w.t, cmd.Process.Pid), c.rights(); got != want {
		w.t.Errorf("rights: wanted %s, got %s", want, got)
	}
	for _, to := range []string{"10.96.0.10:80", "192.0.2.11:30080", "[fd00:96::10]:80", "[2001:db8::11]:30080"} {
		if o := w.Client.Dial("tcp", netip.MustParseAddrPort(to), time.Second); o.Verdict != lab.Answered || o.Pod != "a" {
			w.t.Errorf("%s: %v", to, o)
		}
	}
	if strings.Contains(log.String(), "NodePorts answer on loopback, in user space") {
		for _, to := range []string{"127.0.0.1:30080", "[::1]:30080"} {
			if o := w.node.Dial("tcp", netip.MustParseAddrPort(to), time.Second); o.Verdict != lab.Answered || o.Pod != "a" {
				w.t.Errorf("%s: %v", to, o)
			}
		}
	}
	for _, do := range more {
		do()
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		w.t.Errorf("stopped: %v", err)
	}
	if strings.Contains(log.String(), "level=ERROR") || w.t.Failed() {
		w.t.Errorf("the proxy said:\n%s", log)
	}
	return log.String()
}

// rights are those that the container was to have, as the function of that name tells.
func (c container) rights() string {
	var set uint64
	for _, number := range c.Capabilities {
		set |= 1 << number
	}
	caps := fmt.Sprintf("%x", set)
	nnp := ""
	if c.NoNewPrivs {
		nnp = "1"
	}
	return fmt.Sprintf("CapInh= CapPrm=%s CapEff=%s CapBnd=%s CapAmb= NoNewPrivs=%s", caps, caps, caps, nnp)
}
