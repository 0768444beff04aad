package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// setDetector takes what tells pod traffic from other traffic in the mode; what
// belongs to other modes is not looked at.
func (c *Config) setDetector(clusterCIDR string) error {
	const path = "DetectLocalConfiguration."
	switch c.DetectLocalMode {
	case DetectNodeCIDR:
		return nil
	case DetectBridge:
		return checkInterface(path+"InterfaceName", "detectLocal.bridgeInterface", c.Bridge)
	case DetectInterfacePrefix:
		return checkInterface(path+"InterfacePrefix", "detectLocal.interfaceNamePrefix", c.InterfacePrefix)
	case DetectClusterCIDR:
		return c.setClusterCIDRs(clusterCIDR)
	}
	return invalid("DetectLocalMode", "detectLocalMode", c.DetectLocalMode, "must be one of ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix")
}

// maxInterfaceName is IFNAMSIZ of the kernel less its terminating zero.
const maxInterfaceName = 15

// checkInterface also refuses what no interface can be called, which kube-proxy
// does not: the kernel would refuse every rule.
func checkInterface(path, field, name string) error {
	switch {
	case name == "":
		return invalid(path, field, name, "must not be empty in this detectLocalMode")
	case len(name) > maxInterfaceName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == '"' }):
		return invalid(path, field, name, "is not the name of an interface, which has up to %d printable characters", maxInterfaceName)
	}
	return nil
}

// setClusterCIDRs reads one CIDR, or one of each family with a comma between.
func (c *Config) setClusterCIDRs(list string) error {
	const path, field = "DetectLocalConfiguration.ClusterCIDRs", "clusterCIDR"
	if list == "" {
		return nil
	}
	var errs []error
	for i, s := range strings.Split(list, ",") {
		p, err := parseCIDR(s)
		if err != nil {
			errs = append(errs, invalid(fmt.Sprintf("%s[%d]", path, i), field, s, "must be a CIDR"))
			continue
		}
		c.ClusterCIDRs = append(c.ClusterCIDRs, p)
	}
	if n := strings.Count(list, ",") + 1; len(errs) == 0 && (n > 2 || (n == 2 && c.ClusterCIDRs[0].Addr().Is4() == c.ClusterCIDRs[1].Addr().Is4())) {
		errs = append(errs, invalid(path, field, list, "must be one CIDR or one of each IP family"))
	}
	return errors.Join(errs...)
}

// nodePortWords are what may stand for CIDRs, each once; the addresses of
// "primary" are known when the Node is.
var nodePortWords = map[string][]netip.Prefix{
	"primary":   nil,
	"localhost": {netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	"all":       {netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
}

// setNodePorts reads nodePortAddresses: CIDRs, and kube-proxy's words for some.
func (c *Config) setNodePorts(list []string) error {
	var errs []error
	refuse := func(i int, text string) {
		errs = append(errs, invalid(fmt.Sprintf("NodePortAddresses[%d]", i), fmt.Sprintf("nodePortAddresses[%d]", i), list[i], "%s", text))
	}
	seen := map[string]bool{}
	for i, s := range list {
		if prefixes, word := nodePortWords[s]; word {
			if seen[s] {
				refuse(i, "is there already")
			}
			seen[s] = true
			c.NodePortPrimary = c.NodePortPrimary || s == "primary"
			c.NodePortAddresses = append(c.NodePortAddresses, prefixes...)
			continue
		}
		p, err := parseCIDR(s)
		if err != nil {
			refuse(i, "must be a CIDR or one of primary, localhost, all")
			continue
		}
		c.NodePortAddresses = append(c.NodePortAddresses, p)
	}
	return errors.Join(errs...)
}
