package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"portolan/lab"
	"portolan/podnet"
)

// labNetwork is the pod network of a lab.
type labNetwork struct {
	config podnet.Config
	text   string // of net-conf.json
}

// newLabNetwork reads the value of --podnet.
func newLabNetwork(backend string) (labNetwork, error) {
	if backend != string(podnet.VXLAN) && backend != string(podnet.HostGW) {
		return labNetwork{}, fmt.Errorf("lab: --podnet %q is neither vxlan nor host-gw", backend)
	}
	n := labNetwork{text: fmt.Sprintf(`{"Network": %q, "EnableIPv6": true, "IPv6Network": %q, "Backend": {"Type": %q}}`, lab.PodNetworks[0], lab.PodNetworks[1], backend)}
	var err error
	n.config, err = podnet.ParseConfig([]byte(n.text))
	return n, err
}

// labMTU is that of the lab's wires, bytes.
const labMTU = 1500

// podMTU is what pods of both families may send.
func (n labNetwork) podMTU() int {
	mtu := labMTU
	for _, f := range n.config.Families() {
		mtu = min(mtu, podnet.Topology{Family: f, Config: n.config, Self: podnet.Self{MTU: labMTU}}.MTU())
	}
	return mtu
}

// nodes writes the Nodes of a lab as the API server would have them once every
// podnet has announced itself.
func (n labNetwork) nodes(specs []lab.NodeSpec) ([]byte, error) {
	names, err := podnet.NewAnnotations(podnet.DefaultPrefix)
	if err != nil {
		return nil, err
	}
	var text []byte
	for i, spec := range specs {
		self := podnet.Self{}
		node := v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: spec.Name}}
		for _, a := range spec.Addrs {
			node.Status.Addresses = append(node.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a.String()})
			half := podnet.Half{Addr: a, Public: a, MAC: podnet.MAC{2, 0, 0, 0, 4, byte(i + 1)}}
			if a.Is4() {
				self.V4 = half
			} else {
				half.MAC[4] = 6
				self.V6 = half
			}
		}
		for _, p := range spec.Pods {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
		}
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		node.Annotations = names.Announce(n.config, self, podnet.Node{})
		one, err := yaml.Marshal(node)
		if err != nil {
			return nil, fmt.Errorf("lab: Node %s: %w", spec.Name, err)
		}
		text = append(append(text, "---\n"...), one...)
	}
	return text, nil
}

// start runs this program as the pod network agent of every node, and waits until
// pods of all nodes reach each other.
func (n labNetwork) start(ctx context.Context, l *lab.Lab, self string, specs []lab.NodeSpec) error {
	nodes, err := n.nodes(specs)
	if err != nil {
		return err
	}
	manifests, conf := filepath.Join(l.Dir(), "nodes.yaml"), filepath.Join(l.Dir(), "net-conf.json")
	for path, text := range map[string][]byte{manifests: nodes, conf: []byte(n.text)} {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
	}
	args := []string{"podnet", "--manifests", manifests, "--net-config-path", conf, "--iface", "eth0", "--ip-masq", "--subnet-file", "", "--healthz-ip", "127.0.0.1", "--healthz-port", "8081"}
	err = onEveryNode(l, func(node *lab.Node) error {
		return startAgent(ctx, node, self, append(slices.Clone(args), "--hostname-override", node.Name), "http://127.0.0.1:8081/readyz")
	})
	if err != nil {
		return err
	}
	return l.Settle()
}

// describe is a line about the network for people.
func (n labNetwork) describe() string {
	var ranges []string
	for _, f := range n.config.Families() {
		ranges = append(ranges, n.config.NetworkOf(f).String())
	}
	return fmt.Sprintf("portolan podnet has connected the pods of all nodes: %s, %s, packets of at most %d bytes", n.config.Backend.Type, strings.Join(ranges, " and "), n.podMTU())
}
