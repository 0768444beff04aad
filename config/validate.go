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

// previousMinor is the release whose hidden metrics may be asked for.
const previousMinor = "1.36"

// invalid is an error about one field. The path is kube-proxy's, which names
// fields of its internal form; field is the name in the file.
func invalid(path, field string, value any, format string, args ...any) error {
	return fmt.Errorf("config: %s.%s: invalid value %#v for %s: %s", kind, path, value, field, fmt.Sprintf(format, args...))
}

// check applies kube-proxy 1.37's rules.
func (c *Config) check(from *kubeproxy.KubeProxyConfiguration) error {
	return errors.Join(
		checkMode(c.Mode, from.FeatureGates),
		checkGates(from.FeatureGates),
		checkHostname(c.Hostname),
		c.checkPeriods(),
		checkBits(from, c.Mode),
		c.setBindAddress(from.BindAddress),
		checkServer("HealthzBindAddress", "healthzBindAddress", c.HealthzBindAddress, true),
		checkServer("MetricsBindAddress", "metricsBindAddress", c.MetricsBindAddress, false),
		checkOOMScore(c.OOMScoreAdj),
		checkConntrack(c.Conntrack),
		checkClient(c.Client),
		c.setDetector(from.ClusterCIDR),
		c.setNodePorts(from.NodePortAddresses),
		c.setIPVS(from.IPVS.ExcludeCIDRs),
		checkHiddenMetrics(from.ShowHiddenMetricsForVersion),
		checkLogging(&from.Logging, from.FeatureGates),
	)
}

// checkMode refuses a mode that is none, and ipvs where its feature gate is off.
func checkMode(m Mode, gates map[string]bool) error {
	const path, field = "Mode.ProxyMode", "mode"
	if m != Auto && m != IPTables && m != NFTables && m != IPVS {
		return invalid(path, field, string(m), "must be iptables, ipvs or nftables, or empty for what suits the host")
	}
	if on, given := gates[gateIPVS]; m == IPVS && given && !on {
		return invalid(path, field, string(m), "the feature gate %s is off", gateIPVS)
	}
	return nil
}

func checkHostname(name string) error {
	if name == "" {
		return nil
	}
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return invalid("HostnameOverride", "hostnameOverride", name, "%s", msgs[0])
	}
	return nil
}

// checkPeriods checks those of the mode alone, as kube-proxy does.
func (c *Config) checkPeriods() error {
	section := string(c.Mode)
	if c.Mode == Auto {
		section = string(IPTables)
	}
	var errs []error
	add := func(path, field string, d time.Duration, text string) {
		errs = append(errs, invalid(path, field, d.String(), "%s", text))
	}
	if c.ConfigSyncPeriod <= 0 {
		add("ConfigSyncPeriod", "configSyncPeriod", c.ConfigSyncPeriod, "must be greater than 0")
	}
	if c.MinSyncPeriod < 0 {
		add("MinSyncPeriod", section+".minSyncPeriod", c.MinSyncPeriod, "must not be negative")
	}
	if c.SyncPeriod <= 0 {
		add("SyncPeriod", section+".syncPeriod", c.SyncPeriod, "must be greater than 0")
	}
	if c.SyncPeriod < c.MinSyncPeriod {
		add("MinSyncPeriod", section+".minSyncPeriod", c.MinSyncPeriod, "must not be greater than syncPeriod "+c.SyncPeriod.String()+" ("+kind+".SyncPeriod)")
	}
	return errors.Join(errs...)
}

// checkBits: that of iptables counts in every mode, that of nftables in its own.
func checkBits(from *kubeproxy.KubeProxyConfiguration, m Mode) error {
	check := func(path, field string, bit int32) error {
		if bit < 0 || bit > 31 {
			return invalid(path, field, bit, "must be within 0 to 31")
		}
		return nil
	}
	err := check("KubeProxyIPTablesConfiguration.MasqueradeBit", "iptables.masqueradeBit", *from.IPTables.MasqueradeBit)
	if m == NFTables {
		err = errors.Join(err, check("KubeProxyNFTablesConfiguration.MasqueradeBit", "nftables.masqueradeBit", *from.NFTables.MasqueradeBit))
	}
	return err
}

// setBindAddress reads bindAddress; an unspecified one leaves the choice to the Node.
func (c *Config) setBindAddress(text string) error {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return invalid("BindAddress", "bindAddress", text, "must be an IP address")
	}
	if !addr.IsUnspecified() {
		c.BindAddress = addr.Unmap()
	}
	return nil
}

// checkServer: IP:port, no names of hosts or ports.
func checkServer(path, field, address string, mayBeEmpty bool) error {
	if address == "" && mayBeEmpty {
		return nil
	}
	if ap, err := netip.ParseAddrPort(address); err != nil || ap.Port() == 0 {
		return invalid(path, field, address, "must be IP:port with a port within 1 to 65535")
	}
	return nil
}

func checkOOMScore(score int) error {
	if score < -1000 || score > 1000 {
		return invalid("KubeProxyLinuxConfiguration.OOMScoreAdj", "oomScoreAdj", score, "must be within -1000 to 1000")
	}
	return nil
}

// checkConntrack refuses what is below 0; 0 leaves what is set.
func checkConntrack(c Conntrack) error {
	var errs []error
	for _, f := range []struct {
		path, field string
		bad         bool
		value       any
	}{
		{"MaxPerCore", "maxPerCore", c.MaxPerCore < 0, c.MaxPerCore},
		{"Min", "min", c.Min < 0, c.Min},
		{"TCPEstablishedTimeout", "tcpEstablishedTimeout", c.TCPEstablished < 0, c.TCPEstablished.String()},
		{"TCPCloseWaitTimeout", "tcpCloseWaitTimeout", c.TCPCloseWait < 0, c.TCPCloseWait.String()},
		{"UDPTimeout", "udpTimeout", c.UDP < 0, c.UDP.String()},
		{"UDPStreamTimeout", "udpStreamTimeout", c.UDPStream < 0, c.UDPStream.String()},
	} {
		if f.bad {
			errs = append(errs, invalid("KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration."+f.path, "conntrack."+f.field, f.value, "must not be negative"))
		}
	}
	return errors.Join(errs...)
}

func checkClient(c Client) error {
	if c.Burst < 0 {
		return invalid("ClientConnection.Burst", "clientConnection.burst", c.Burst, "must not be negative")
	}
	return nil
}

// setIPVS checks what counts in ipvs mode only.
func (c *Config) setIPVS(exclude []string) error {
	if c.Mode != IPVS {
		return nil
	}
	const path, field = "KubeProxyIPVSConfiguration.", "ipvs."
	var errs []error
	for _, f := range []struct {
		path, field string
		timeout     time.Duration
	}{
		{"TCPTimeout", "tcpTimeout", c.IPVS.TCP},
		{"TCPFinTimeout", "tcpFinTimeout", c.IPVS.TCPFin},
		{"UDPTimeout", "udpTimeout", c.IPVS.UDP},
	} {
		if f.timeout < 0 {
			errs = append(errs, invalid(path+f.path, field+f.field, f.timeout.String(), "must not be negative"))
		}
	}
	for i, text := range exclude {
		p, err := parseCIDR(text)
		if err != nil {
			errs = append(errs, invalid(fmt.Sprintf("%sExcludeCidrs[%d]", path, i), fmt.Sprintf("%sexcludeCIDRs[%d]", field, i), text, "must be a CIDR"))
			continue
		}
		c.IPVS.ExcludeCIDRs = append(c.IPVS.ExcludeCIDRs, p)
	}
	return errors.Join(errs...)
}

func checkHiddenMetrics(version string) error {
	if version != "" && version != previousMinor {
		return invalid("ShowHiddenMetricsForVersion", "showHiddenMetricsForVersion", version, "must be empty or the previous minor release, %s", previousMinor)
	}
	return nil
}

// parseCIDR takes host bits, and leading zeros in an IPv4 address as decimal, as
// kube-proxy does.
func parseCIDR(text string) (netip.Prefix, error) {
	addr, bits, _ := strings.Cut(text, "/")
	if parts := strings.Split(addr, "."); len(parts) == 4 {
		for i, p := range parts {
			if short := strings.TrimLeft(p, "0"); short != "" {
				parts[i] = short
			} else if p != "" {
				parts[i] = "0"
			}
		}
		text = strings.Join(parts, ".") + "/" + bits
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}
