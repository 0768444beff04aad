package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan/lab"
)

// podNet is a lab whose nodes run portolan podnet.
type podNet struct {
	*lab.Lab
	t       *testing.T
	dir     string
	running map[string]*lab.Cmd
}

// podNetNode is a Node as flannel leaves it: the annotations are its own, byte for
// byte.
const podNetNode = `---
apiVersion: v1
kind: Node
metadata:
  name: node%[1]d
  annotations:
    flannel.alpha.coreos.com/backend-data: '%[2]s'
    flannel.alpha.coreos.com/backend-type: %[4]s
    flannel.alpha.coreos.com/backend-v6-data: '%[3]s'
    flannel.alpha.coreos.com/kube-subnet-manager: "true"
    flannel.alpha.coreos.com/public-ip: 192.0.2.1%[1]d
    flannel.alpha.coreos.com/public-ipv6: 2001:db8::1%[1]d
spec: {podCIDRs: [10.244.%[1]d.0/24, "fd00:244:%[1]d::/64"]}
status: {addresses: [{type: InternalIP, address: 192.0.2.1%[1]d}]}
`

// podNetAnnotations are those of node number i.
func podNetAnnotations(backend string, i int, n lab.NodeSpec) string {
	v4, v6 := "null", "null"
	if backend == "vxlan" {
		v4, v6 = fmt.Sprintf(`{"VNI":1,"VtepMAC":"02:00:00:00:04:0%d"}`, i), fmt.Sprintf(`{"VNI":1,"VtepMAC":"02:00:00:00:06:0%d"}`, i)
	}
	text := "  annotations:\n"
	for _, pair := range [][2]string{{"backend-type", backend}, {"backend-data", v4}, {"backend-v6-data", v6}, {"kube-subnet-manager", "true"}, {"public-ip", n.Addrs[0].String()}, {"public-ipv6", n.Addrs[1].String()}} {
		text += fmt.Sprintf("    flannel.alpha.coreos.com/%s: '%s'\n", pair[0], pair[1])
	}
	return text
}

// podNetConf is a net-conf.json for the lab.
func podNetConf(backend string) string {
	return fmt.Sprintf(`{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/32","Backend":{"Type":%q}}`, backend)
}

// startPodNet runs the agent of a node until the lab closes, and waits until it is
// ready.
func startPodNet(t *testing.T, n *lab.Node, backend, manifests string, log io.Writer) error {
	conf := filepath.Join(t.TempDir(), "net-conf.json")
	if err := os.WriteFile(conf, []byte(podNetConf(backend)), 0o644); err != nil {
		return err
	}
	cmd := n.Command(context.WithoutCancel(t.Context()), lab.HostVariant, binary, "podnet", "--manifests", manifests, "--net-config-path", conf,
		"--hostname-override", n.Name, "--iptables-forward-rules=false", "--subnet-file", "", "--healthz-ip", "127.0.0.1", "--healthz-port", "8081")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	return n.AwaitOK(ctx, "http://127.0.0.1:8081/readyz", cmd.Done())
}

func newPodNet(t *testing.T, nodes int) *podNet {
	t.Helper()
	dir := t.TempDir() // removed when nobody writes into it any more
	top := lab.Numbered(nodes, 2, 8080)
	top.PodNetwork, top.PodMTU = true, 1450
	l, err := lab.New(top)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &podNet{Lab: l, t: t, dir: dir, running: map[string]*lab.Cmd{}}
}

// configure writes net-conf.json and the Nodes of the numbers given.
func (p *podNet) configure(backend string, nodes ...int) {
	p.t.Helper()
	var text strings.Builder
	for _, i := range nodes {
		v4, v6 := "null", "null"
		if backend == "vxlan" {
			v4, v6 = fmt.Sprintf(`{"VNI":1,"VtepMAC":"02:00:00:00:04:0%d"}`, i), fmt.Sprintf(`{"VNI":1,"VtepMAC":"02:00:00:00:06:0%d"}`, i)
		}
		fmt.Fprintf(&text, podNetNode, i, v4, v6, backend)
	}
	for name, text := range map[string]string{"net-conf.json": podNetConf(backend), "nodes.yaml": text.String()} {
		next := filepath.Join(p.dir, "."+name)
		if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
			p.t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(p.dir, name)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// start runs the agent of a node until it says that it is ready.
func (p *podNet) start(node string) {
	p.t.Helper()
	cmd := p.Node(node).Command(context.WithoutCancel(p.t.Context()), lab.HostVariant, binary, "podnet", "--manifests", filepath.Join(p.dir, "nodes.yaml"), "--net-config-path", filepath.Join(p.dir, "net-conf.json"),
		"--hostname-override", node, "--ip-masq", "--subnet-file", filepath.Join(p.dir, node+".env"), "--healthz-ip", "127.0.0.1", "--healthz-port", "8081")
	said := &strings.Builder{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	if err := p.Node(node).AwaitOK(ctx, "http://127.0.0.1:8081/readyz", cmd.Done()); err != nil {
		_ = cmd.Process.Kill() // so that what it said can be read
		_ = cmd.Wait()
		p.t.Fatalf("%v\n%s", err, said)
	}
	p.running[node] = cmd
}

// stop ends the agent of a node as the kubelet does.
func (p *podNet) stop(node string) {
	p.t.Helper()
	if err := errors.Join(p.running[node].Process.Signal(syscall.SIGTERM), p.running[node].Wait()); err != nil {
		p.t.Fatalf("podnet of %s: %v", node, err)
	}
}

func (p *podNet) settle() {
	p.t.Helper()
	if err := p.Settle(); err != nil {
		p.t.Fatal(err)
	}
}

// run runs a program in a node.
func (p *podNet) run(node string, words ...string) string {
	p.t.Helper()
	out, err := p.Node(node).Command(p.t.Context(), lab.HostVariant, words[0], words[1:]...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s in %s: %v %s", strings.Join(words, " "), node, err, out)
	}
	return string(out)
}

// wants fails unless the output of a command has every line.
func (p *podNet) wants(node, command string, lines ...string) {
	p.t.Helper()
	got := strings.Split(p.run(node, strings.Fields(command)...), "\n")
	for i := range got {
		got[i] = strings.Join(strings.Fields(got[i]), " ")
	}
	for _, line := range lines {
		if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, line) }) {
			p.t.Errorf("%s in %s has no line %q:\n%s", command, node, line, strings.Join(got, "\n"))
		}
	}
}

// until runs a command in node1 until its output is as wanted.
func (p *podNet) until(command string, done func(string) bool) {
	p.t.Helper()
	err := eventually(func() error {
		if out := p.run("node1", strings.Fields(command)...); !done(out) {
			return fmt.Errorf("%s stays:\n%s", command, out)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
}
