package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// Mode is a proxy mode.
type Mode string

// The modes that can be asked for; Auto leaves the choice to the host.
const (
	Auto     Mode = ""
	IPTables Mode = "iptables"
	NFTables Mode = "nftables"
)

// The values of detectLocalMode, kube-proxy 1.37.
const (
	DetectClusterCIDR     = "ClusterCIDR"
	DetectNodeCIDR        = "NodeCIDR"
	DetectBridge          = "BridgeInterface"
	DetectInterfacePrefix = "InterfaceNamePrefix"
)

// Config is what the commands work with: checked, and in types of its own.
type Config struct {
	Mode     Mode
	Hostname string // trimmed, lower-case; empty means the host's own name

	DetectLocalMode string // one of kube-proxy's four modes
	ClusterCIDRs    []netip.Prefix
	Bridge          string
	InterfacePrefix string

	MasqueradeAll bool
	MasqueradeBit int // 0 to 31; the mark is 1 << MasqueradeBit

	NodePortAddresses  []netip.Prefix
	NodePortPrimary    bool // keyword primary: the Node's own addresses
	LocalhostNodePorts bool

	SyncPeriod, MinSyncPeriod time.Duration
	HealthzBindAddress        string // ip:port
}

// New checks a KubeProxyConfiguration. All failures are reported together, each
// with the path of its field.
func New(c *kubeproxy.KubeProxyConfiguration) (Config, error) {
	out := Config{
		Mode:               Mode(c.Mode),
		Hostname:           strings.ToLower(strings.TrimSpace(c.HostnameOverride)),
		DetectLocalMode:    string(c.DetectLocalMode),
		Bridge:             c.DetectLocal.BridgeInterface,
		InterfacePrefix:    c.DetectLocal.InterfaceNamePrefix,
		MasqueradeAll:      c.IPTables.MasqueradeAll,
		MasqueradeBit:      int(*c.IPTables.MasqueradeBit),
		LocalhostNodePorts: *c.IPTables.LocalhostNodePorts,
		SyncPeriod:         c.IPTables.SyncPeriod.Duration,
		MinSyncPeriod:      c.IPTables.MinSyncPeriod.Duration,
		HealthzBindAddress: c.HealthzBindAddress,
	}
	section := "iptables"
	if out.Mode == NFTables {
		section = "nftables"
		out.MasqueradeAll = c.NFTables.MasqueradeAll
		out.MasqueradeBit = int(*c.NFTables.MasqueradeBit)
		out.SyncPeriod = c.NFTables.SyncPeriod.Duration
		out.MinSyncPeriod = c.NFTables.MinSyncPeriod.Duration
		// Loopback needs more than rules there; see docs/modes.md.
		out.LocalhostNodePorts = false
	}
	err := errors.Join(
		checkMode(out.Mode),
		checkHostname(out.Hostname),
		checkPeriods(section, out),
		checkMasqueradeBit("iptables", int(*c.IPTables.MasqueradeBit)),
		checkNFTablesBit(out),
		out.setHealthz(),
		out.setDetector(c.ClusterCIDR),
		out.setNodePorts(c.NodePortAddresses),
	)
	return out, err
}

// invalid is an error about one field.
func invalid(path, format string, args ...any) error {
	return fmt.Errorf("config: %s.%s: %s", kind, path, fmt.Sprintf(format, args...))
}

func checkMode(m Mode) error {
	if m != Auto && m != IPTables && m != NFTables {
		return invalid("mode", "%q is not supported; iptables and nftables are", m)
	}
	return nil
}

func checkHostname(name string) error {
	if name == "" {
		return nil
	}
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return invalid("hostnameOverride", "%q: %s", name, msgs[0])
	}
	return nil
}

// checkPeriods checks what came from a section of the file.
func checkPeriods(section string, c Config) error {
	switch {
	case c.MinSyncPeriod < 0:
		return invalid(section+".minSyncPeriod", "%s is negative", c.MinSyncPeriod)
	case c.SyncPeriod <= 0:
		return invalid(section+".syncPeriod", "%s is not greater than 0", c.SyncPeriod)
	case c.SyncPeriod < c.MinSyncPeriod:
		return invalid(section+".syncPeriod", "%s is less than minSyncPeriod %s", c.SyncPeriod, c.MinSyncPeriod)
	}
	return nil
}

func checkMasqueradeBit(section string, bit int) error {
	if bit < 0 || bit > 31 {
		return invalid(section+".masqueradeBit", "%d is not within 0 to 31", bit)
	}
	return nil
}

// checkNFTablesBit: kube-proxy looks at this one in its own mode only, and at
// that of iptables always.
func checkNFTablesBit(c Config) error {
	if c.Mode != NFTables {
		return nil
	}
	return checkMasqueradeBit("nftables", c.MasqueradeBit)
}

func (c *Config) setHealthz() error {
	if addr, err := netip.ParseAddr(c.HealthzBindAddress); err == nil {
		c.HealthzBindAddress = netip.AddrPortFrom(addr, 10256).String()
	}
	if ap, err := netip.ParseAddrPort(c.HealthzBindAddress); err != nil || ap.Port() == 0 {
		return invalid("healthzBindAddress", "%q is not IP:port", c.HealthzBindAddress)
	}
	return nil
}

func (c *Config) setDetector(clusterCIDR string) error {
	switch c.DetectLocalMode {
	case DetectNodeCIDR:
	case DetectBridge:
		if c.Bridge == "" {
			return invalid("detectLocal.bridgeInterface", "is empty in mode BridgeInterface")
		}
		return checkInterface("detectLocal.bridgeInterface", c.Bridge)
	case DetectInterfacePrefix:
		if c.InterfacePrefix == "" {
			return invalid("detectLocal.interfaceNamePrefix", "is empty in mode InterfaceNamePrefix")
		}
		return checkInterface("detectLocal.interfaceNamePrefix", c.InterfacePrefix)
	case DetectClusterCIDR:
		return c.setClusterCIDRs(clusterCIDR)
	default:
		return invalid("detectLocalMode", "%q is not one of ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix", c.DetectLocalMode)
	}
	return nil
}

// maxInterfaceName is IFNAMSIZ of the kernel less its terminating zero.
const maxInterfaceName = 15

func checkInterface(path, name string) error {
	if len(name) > maxInterfaceName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == '"' }) {
		return invalid(path, "%q is not the name of an interface", name)
	}
	return nil
}

func (c *Config) setClusterCIDRs(list string) error {
	if list == "" {
		return nil
	}
	parts := strings.Split(list, ",")
	for _, s := range parts {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return invalid("clusterCIDR", "%q is not a CIDR", s)
		}
		c.ClusterCIDRs = append(c.ClusterCIDRs, p.Masked())
	}
	if n := len(c.ClusterCIDRs); n > 2 || (n == 2 && c.ClusterCIDRs[0].Addr().Is4() == c.ClusterCIDRs[1].Addr().Is4()) {
		return invalid("clusterCIDR", "%q is neither one CIDR nor one of each family", list)
	}
	return nil
}

func (c *Config) setNodePorts(list []string) error {
	var errs []error
	seen := map[string]bool{}
	for i, s := range list {
		path := fmt.Sprintf("nodePortAddresses[%d]", i)
		switch s {
		case "primary", "localhost", "all":
			if seen[s] {
				errs = append(errs, invalid(path, "%q is there already", s))
			}
			seen[s] = true
		}
		switch s {
		case "primary":
			c.NodePortPrimary = true
		case "localhost":
			c.NodePortAddresses = append(c.NodePortAddresses, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
		case "all":
			c.NodePortAddresses = append(c.NodePortAddresses, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
		default:
			p, err := netip.ParsePrefix(s)
			if err != nil {
				errs = append(errs, invalid(path, "%q is neither a CIDR nor one of primary, localhost, all", s))
				continue
			}
			c.NodePortAddresses = append(c.NodePortAddresses, p.Masked())
		}
	}
	return errors.Join(errs...)
}
