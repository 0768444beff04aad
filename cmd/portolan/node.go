package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"portolan/config"
	"portolan/service"
	"portolan/source/kube"
)

// nodeFlags are what proxy and plan need to know of the cluster and this node.
type nodeFlags struct {
	config    *config.Flags
	manifests []string
	nodeIPs   []string
}

func addNodeFlags(set *pflag.FlagSet) *nodeFlags {
	f := &nodeFlags{config: config.AddFlags(set)}
	set.StringArrayVar(&f.manifests, "manifests", nil, "file or folder with Services, EndpointSlices and Nodes, YAML or JSON; repeatable")
	set.StringArrayVar(&f.nodeIPs, "node-ip", nil, "address of this node, instead of those of its Node object; repeatable")
	return f
}

// settings returns what Services depend on of this node, with the addresses of
// its interfaces when they matter.
func (f *nodeFlags) settings(c config.Config) (kube.Settings, error) {
	if len(f.manifests) == 0 {
		return kube.Settings{}, errors.New("no input: name files or folders with --manifests PATH")
	}
	name, err := nodeName(c)
	if err != nil {
		return kube.Settings{}, err
	}
	s := kube.Settings{
		NodeName:        name,
		DetectMode:      kube.DetectMode(c.DetectLocalMode),
		ClusterCIDRs:    c.ClusterCIDRs,
		Bridge:          c.Bridge,
		InterfacePrefix: c.InterfacePrefix,
		MasqueradeAll:   c.MasqueradeAll,
		NodePorts:       service.NodePortAddresses{Prefixes: c.NodePortAddresses, Localhost: c.LocalhostNodePorts},
	}
	for _, text := range f.nodeIPs {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return kube.Settings{}, fmt.Errorf("flag --node-ip: %q is not an IP address", text)
		}
		s.NodeIPs = append(s.NodeIPs, addr.Unmap())
	}
	if c.NodePortPrimary {
		s.NodePortsPrimary = true
	}
	if len(s.NodePorts.Prefixes) > 0 || s.NodePortsPrimary {
		s.NodePorts.Local, err = localAddresses()
	}
	return s, err
}

// nodeName is the configured name, else the host's, in lower case as kubelet
// registers it.
func nodeName(c config.Config) (string, error) {
	if c.Hostname != "" {
		return c.Hostname, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of this host: %w; use --hostname-override", err)
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}
