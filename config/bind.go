package config

import (
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// bind defines kube-proxy 1.37's flags, which write into c. What c holds is
// their default.
func bind(set *pflag.FlagSet, c *kubeproxy.KubeProxyConfiguration, o *outside) {
	bindProcess(set, c, o)
	bindTraffic(set, c)
	bindModes(set, c)
	bindConntrack(set, &c.Conntrack)
	bindLogging(set, &c.Logging)
}

// bindProcess binds the flags about this process: its name, its servers, its rights.
func bindProcess(set *pflag.FlagSet, c *kubeproxy.KubeProxyConfiguration, o *outside) {
	set.StringVar(&c.HostnameOverride, "hostname-override", c.HostnameOverride, "name of this Node, instead of the host's name")
	set.Var(ipValue{&c.BindAddress}, "bind-address", "address of this node that comes first; an unspecified one leaves that to the Node object")
	set.BoolVar(&c.BindAddressHardFail, "bind-address-hard-fail", c.BindAddressHardFail, "end when a server cannot listen, instead of trying again")
	set.Var(addressValue{&c.HealthzBindAddress}, "healthz-bind-address", "IP:port of /healthz and /livez")
	set.Var(addressValue{&c.MetricsBindAddress}, "metrics-bind-address", "IP:port of /metrics, /proxyMode and /configz")
	set.Int32Var(&o.healthzPort, "healthz-port", 10256, "port for a --healthz-bind-address without one; 0 for no server")
	set.Int32Var(&o.metricsPort, "metrics-port", 10249, "port for a --metrics-bind-address without one")
	for _, name := range []string{"healthz-port", "metrics-port"} {
		_ = set.MarkDeprecated(name, "give the port with the address: --"+name[:len(name)-len("port")]+"bind-address") // it is there
	}
	set.BoolVar(&c.EnableProfiling, "profiling", c.EnableProfiling, "answer /debug/pprof on the metrics server")
	set.StringVar(&c.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", c.ShowHiddenMetricsForVersion, "previous minor release whose hidden metrics to show; none are hidden here")
	set.Int32Var(c.OOMScoreAdj, "oom-score-adj", *c.OOMScoreAdj, "oom_score_adj of this process, -1000 to 1000")
	set.Var(cliflag.NewMapStringBool(&c.FeatureGates), "feature-gates", "gates as name=true or false, with commas between; unknown ones are reported and change nothing")
	set.StringVar(&c.ClientConnection.Kubeconfig, "kubeconfig", c.ClientConnection.Kubeconfig, "file that says how to reach the API server; without it that of the cluster around this process")
	set.StringVar(&o.master, "master", "", "address of the API server, instead of that in --kubeconfig")
	set.StringVar(&c.ClientConnection.ContentType, "kube-api-content-type", c.ClientConnection.ContentType, "content type of requests to the API server")
	set.Float32Var(&c.ClientConnection.QPS, "kube-api-qps", c.ClientConnection.QPS, "requests a second to the API server")
	set.Int32Var(&c.ClientConnection.Burst, "kube-api-burst", c.ClientConnection.Burst, "requests at once to the API server")
	set.DurationVar(&c.ConfigSyncPeriod.Duration, "config-sync-period", c.ConfigSyncPeriod.Duration, "how often what is known of the API server is looked through; above 0")
}

// bindTraffic binds the flags about what is answered for, in every mode.
func bindTraffic(set *pflag.FlagSet, c *kubeproxy.KubeProxyConfiguration) {
	set.StringVar((*string)(&c.Mode), "proxy-mode", string(c.Mode), "iptables, nftables, ipvs, or empty for what suits this host")
	set.StringVar(&c.ClusterCIDR, "cluster-cidr", c.ClusterCIDR, "pod CIDR of the cluster, or one of each family with a comma between")
	set.StringVar((*string)(&c.DetectLocalMode), "detect-local-mode", string(c.DetectLocalMode), "how pod traffic is told from other: ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix")
	set.StringVar(&c.DetectLocal.BridgeInterface, "pod-bridge-interface", c.DetectLocal.BridgeInterface, "bridge of the pods, for BridgeInterface")
	set.StringVar(&c.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", c.DetectLocal.InterfaceNamePrefix, "how the names of pod interfaces start, for InterfaceNamePrefix")
	set.StringSliceVar(&c.NodePortAddresses, "nodeport-addresses", c.NodePortAddresses, "CIDRs of the node addresses that answer NodePorts, or primary, localhost, all; empty means all")
	set.Var(bothBools{&c.IPTables.MasqueradeAll, &c.NFTables.MasqueradeAll}, "masquerade-all", "masquerade everything sent to a cluster IP")
	set.Lookup("masquerade-all").NoOptDefVal = "true"
}

// bindModes binds the flags of one mode or two.
func bindModes(set *pflag.FlagSet, c *kubeproxy.KubeProxyConfiguration) {
	set.Int32Var(c.IPTables.MasqueradeBit, "iptables-masquerade-bit", *c.IPTables.MasqueradeBit, "bit of the packet mark that asks for masquerade, 0 to 31; iptables and ipvs mode")
	set.BoolVar(c.IPTables.LocalhostNodePorts, "iptables-localhost-nodeports", *c.IPTables.LocalhostNodePorts, "answer NodePorts on IPv4 loopback too; iptables mode")
	set.Var(bothDurations{&c.IPTables.SyncPeriod.Duration, &c.NFTables.SyncPeriod.Duration}, "iptables-sync-period", "how long a change may wait before the proxy counts as unhealthy, by half; pause before a retry at most; iptables and nftables mode")
	set.Var(bothDurations{&c.IPTables.MinSyncPeriod.Duration, &c.NFTables.MinSyncPeriod.Duration}, "iptables-min-sync-period", "least time between two writes; iptables and nftables mode, where it is 10ms unless given")
	v := &c.IPVS
	set.DurationVar(&v.SyncPeriod.Duration, "ipvs-sync-period", v.SyncPeriod.Duration, "as --iptables-sync-period, for ipvs mode")
	set.DurationVar(&v.MinSyncPeriod.Duration, "ipvs-min-sync-period", v.MinSyncPeriod.Duration, "as --iptables-min-sync-period, for ipvs mode")
	set.StringVar(&v.Scheduler, "ipvs-scheduler", v.Scheduler, "scheduler of ipvs mode; empty for round robin")
	set.StringSliceVar(&v.ExcludeCIDRs, "ipvs-exclude-cidrs", v.ExcludeCIDRs, "CIDRs whose virtual servers ipvs mode leaves alone")
	set.BoolVar(&v.StrictARP, "ipvs-strict-arp", v.StrictARP, "ipvs mode: answer ARP for addresses of the interface asked only")
	set.DurationVar(&v.TCPTimeout.Duration, "ipvs-tcp-timeout", v.TCPTimeout.Duration, "ipvs mode: timeout of idle TCP connections; 0 leaves what is set")
	set.DurationVar(&v.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", v.TCPFinTimeout.Duration, "ipvs mode: timeout of TCP connections after FIN; 0 leaves what is set")
	set.DurationVar(&v.UDPTimeout.Duration, "ipvs-udp-timeout", v.UDPTimeout.Duration, "ipvs mode: timeout of UDP flows; 0 leaves what is set")
}

// bindConntrack binds the flags about connection tracking.
func bindConntrack(set *pflag.FlagSet, c *kubeproxy.KubeProxyConntrackConfiguration) {
	set.Int32Var(c.MaxPerCore, "conntrack-max-per-core", *c.MaxPerCore, "flows to keep track of, for each CPU; 0 leaves what is set")
	set.Int32Var(c.Min, "conntrack-min", *c.Min, "flows to keep track of at least, whatever the number of CPUs")
	set.DurationVar(&c.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", c.TCPEstablishedTimeout.Duration, "timeout of idle TCP connections; 0 leaves what is set")
	set.DurationVar(&c.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", c.TCPCloseWaitTimeout.Duration, "timeout of TCP connections in CLOSE_WAIT; 0 leaves what is set")
	set.BoolVar(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", c.TCPBeLiberal, "take TCP packets outside of the window for valid ones")
	set.DurationVar(&c.UDPTimeout.Duration, "conntrack-udp-timeout", c.UDPTimeout.Duration, "timeout of UDP flows without an answer; 0 leaves what is set")
	set.DurationVar(&c.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", c.UDPStreamTimeout.Duration, "timeout of UDP flows with answers; 0 leaves what is set")
}

// bindLogging takes component-base's flags, and those that it leaves out in a
// program without its JSON format, which is ours.
func bindLogging(set *pflag.FlagSet, c *logsapi.LoggingConfiguration) {
	logsapi.AddFlags(c, set)
	set.Lookup("logging-format").Usage = "text or json"
	if set.Lookup("log-json-split-stream") == nil {
		set.BoolVar(&c.Options.JSON.SplitStream, "log-json-split-stream", c.Options.JSON.SplitStream, "accepted; everything goes to standard error")
		set.Var(&c.Options.JSON.InfoBufferSize, "log-json-info-buffer-size", "accepted; nothing is held back")
	}
}

// bothBools and bothDurations are flags that fill the sections of two modes.
type (
	bothBools     [2]*bool
	bothDurations [2]*time.Duration
)
