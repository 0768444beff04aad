package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"portolan/config"
	"portolan/service"
	"portolan/source/kube"
)

// nodeSettings returns what Services depend on of this node, with the addresses
// of its interfaces when they matter.
func nodeSettings(c config.Config) (kube.Settings, error) {
	name, err := nodeName(c)
	if err != nil {
		return kube.Settings{}, err
	}
	s := kube.Settings{
		NodeName:         name,
		DetectMode:       kube.DetectMode(c.DetectLocalMode),
		ClusterCIDRs:     c.ClusterCIDRs,
		Bridge:           c.Bridge,
		InterfacePrefix:  c.InterfacePrefix,
		MasqueradeAll:    c.MasqueradeAll,
		NodePorts:        service.NodePortAddresses{Prefixes: c.NodePortAddresses, Localhost: c.LocalhostNodePorts},
		NodePortsPrimary: c.NodePortPrimary,
	}
	if s.NodeIPs, err = nodeIPs(c); err != nil {
		return kube.Settings{}, err
	}
	if len(s.NodePorts.Prefixes) > 0 || s.NodePortsPrimary || c.Mode == config.IPVS {
		s.NodePorts.Local, err = localAddresses()
	}
	return s, err
}

// nodeIPs are the addresses that the configuration gives this node; they stand
// before those of the Node object, bindAddress first.
func nodeIPs(c config.Config) ([]netip.Addr, error) {
	list, err := c.Options.Addrs()
	if c.BindAddress.IsValid() {
		list = append([]netip.Addr{c.BindAddress}, list...)
	}
	return list, err
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
