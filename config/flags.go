package config

import (
	"github.com/spf13/pflag"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// Flags are kube-proxy's flags, and the file that stands beside them.
type Flags struct {
	File string
	// Auto is the mode of this host where none is asked for.
	Auto Mode
	set  *pflag.FlagSet
	from kubeproxy.KubeProxyConfiguration
}

// AddFlags defines the flags.
func AddFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{set: set}
	c := &f.from
	SetDefaults(c)
	set.StringVar(&f.File, "config", "", "file with a KubeProxyConfiguration")
	set.StringVar((*string)(&c.Mode), "proxy-mode", "", "iptables, nftables, or empty for what suits this host")
	set.StringVar(&c.HostnameOverride, "hostname-override", "", "name of this Node, instead of the host's name")
	set.StringVar(&c.ClusterCIDR, "cluster-cidr", "", "pod CIDR of the cluster, or one of each family with a comma between")
	set.StringVar((*string)(&c.DetectLocalMode), "detect-local-mode", string(c.DetectLocalMode), "how pod traffic is told from other: ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix")
	set.StringVar(&c.DetectLocal.BridgeInterface, "pod-bridge-interface", "", "bridge of the pods, for BridgeInterface")
	set.StringVar(&c.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "", "how the names of pod interfaces start, for InterfaceNamePrefix")
	set.BoolVar(&c.IPTables.MasqueradeAll, "masquerade-all", false, "masquerade everything sent to a cluster IP")
	set.Int32Var(c.IPTables.MasqueradeBit, "iptables-masquerade-bit", *c.IPTables.MasqueradeBit, "bit of the packet mark that asks for masquerade, 0 to 31")
	set.BoolVar(c.IPTables.LocalhostNodePorts, "iptables-localhost-nodeports", true, "answer NodePorts on IPv4 loopback too")
	set.DurationVar(&c.IPTables.SyncPeriod.Duration, "iptables-sync-period", c.IPTables.SyncPeriod.Duration, "how long a change may wait before the proxy counts as unhealthy, by half; pause before a retry at most")
	set.DurationVar(&c.IPTables.MinSyncPeriod.Duration, "iptables-min-sync-period", c.IPTables.MinSyncPeriod.Duration, "least time between two writes")
	set.StringSliceVar(&c.NodePortAddresses, "nodeport-addresses", nil, "CIDRs of the node addresses that answer NodePorts, or primary, localhost, all; empty means all")
	set.StringVar(&c.HealthzBindAddress, "healthz-bind-address", c.HealthzBindAddress, "IP:port of /healthz and /livez")
	return f
}

// Config returns the checked configuration and warnings about the file. With a
// file and flagsBeatFile every flag that was given stands above the file; else
// only --hostname-override does, as in kube-proxy.
func (f *Flags) Config(flagsBeatFile bool) (Config, []string, error) {
	f.set.Visit(func(flag *pflag.Flag) {
		// The flags of iptables mode that are not about iptables.
		from, to := &f.from.IPTables, &f.from.NFTables
		switch flag.Name {
		case "masquerade-all":
			to.MasqueradeAll = from.MasqueradeAll
		case "iptables-sync-period":
			to.SyncPeriod = from.SyncPeriod
		case "iptables-min-sync-period":
			to.MinSyncPeriod = from.MinSyncPeriod
		}
	})
	if f.File == "" {
		c, err := New(f.withMode(&f.from))
		return c, nil, err
	}
	fromFile, warnings, err := Read(f.File)
	if err != nil {
		return Config{}, nil, err
	}
	f.set.Visit(func(flag *pflag.Flag) {
		if set := overrides[flag.Name]; set != nil && (flagsBeatFile || flag.Name == "hostname-override") {
			set(fromFile, &f.from)
		}
	})
	c, err := New(f.withMode(fromFile))
	return c, warnings, err
}

// withMode fills in the mode of this host.
func (f *Flags) withMode(c *kubeproxy.KubeProxyConfiguration) *kubeproxy.KubeProxyConfiguration {
	if c.Mode != "" || f.Auto == Auto {
		return c
	}
	with := *c
	with.Mode = kubeproxy.ProxyMode(f.Auto)
	return &with
}

// overrides copy the field of one flag.
var overrides = map[string]func(to, from *kubeproxy.KubeProxyConfiguration){
	"proxy-mode":        func(to, from *kubeproxy.KubeProxyConfiguration) { to.Mode = from.Mode },
	"hostname-override": func(to, from *kubeproxy.KubeProxyConfiguration) { to.HostnameOverride = from.HostnameOverride },
	"cluster-cidr":      func(to, from *kubeproxy.KubeProxyConfiguration) { to.ClusterCIDR = from.ClusterCIDR },
	"detect-local-mode": func(to, from *kubeproxy.KubeProxyConfiguration) { to.DetectLocalMode = from.DetectLocalMode },
	"pod-bridge-interface": func(to, from *kubeproxy.KubeProxyConfiguration) {
		to.DetectLocal.BridgeInterface = from.DetectLocal.BridgeInterface
	},
	"pod-interface-name-prefix": func(to, from *kubeproxy.KubeProxyConfiguration) {
		to.DetectLocal.InterfaceNamePrefix = from.DetectLocal.InterfaceNamePrefix
	},
	"masquerade-all": func(to, from *kubeproxy.KubeProxyConfiguration) {
		to.IPTables.MasqueradeAll, to.NFTables.MasqueradeAll = from.IPTables.MasqueradeAll, from.NFTables.MasqueradeAll
	},
	"iptables-masquerade-bit": func(to, from *kubeproxy.KubeProxyConfiguration) {
		to.IPTables.MasqueradeBit = from.IPTables.MasqueradeBit
	},
	"iptables-localhost-nodeports": func(to, from *kubeproxy.KubeProxyConfiguration) {
		to.IPTables.LocalhostNodePorts = from.IPTables.LocalhostNodePorts
	},
	"iptables-sync-period": func(to, from *kubeproxy.KubeProxyConfiguration) {
		to.IPTables.SyncPeriod, to.NFTables.SyncPeriod = from.IPTables.SyncPeriod, from.NFTables.SyncPeriod
	},
	"iptables-min-sync-period": func(to, from *kubeproxy.KubeProxyConfiguration) {
		to.IPTables.MinSyncPeriod, to.NFTables.MinSyncPeriod = from.IPTables.MinSyncPeriod, from.NFTables.MinSyncPeriod
	},
	"nodeport-addresses":   func(to, from *kubeproxy.KubeProxyConfiguration) { to.NodePortAddresses = from.NodePortAddresses },
	"healthz-bind-address": func(to, from *kubeproxy.KubeProxyConfiguration) { to.HealthzBindAddress = from.HealthzBindAddress },
}
