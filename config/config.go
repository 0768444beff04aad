package config

import (
	"net/netip"
	"strings"
	"time"

	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// Mode is a proxy mode.
type Mode string

// The modes that can be asked for; Auto leaves the choice to the host.
const (
	Auto     Mode = ""
	IPTables Mode = "iptables"
	NFTables Mode = "nftables"
	IPVS     Mode = "ipvs"
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

	// BindAddress stands before the Node's own addresses; not valid when the
	// configuration names none, or all.
	BindAddress netip.Addr

	DetectLocalMode string // one of kube-proxy's four modes
	ClusterCIDRs    []netip.Prefix
	Bridge          string
	InterfacePrefix string

	MasqueradeAll bool
	MasqueradeBit int // 0 to 31; the mark is 1 << MasqueradeBit

	NodePortAddresses  []netip.Prefix
	NodePortPrimary    bool // keyword primary: the Node's own addresses
	LocalhostNodePorts bool

	SyncPeriod, MinSyncPeriod, ConfigSyncPeriod time.Duration

	HealthzBindAddress  string // ip:port; empty for no server
	MetricsBindAddress  string // ip:port
	BindAddressHardFail bool
	Profiling           bool

	OOMScoreAdj int // -1000 to 1000
	Conntrack   Conntrack
	IPVS        IPVSSettings
	Client      Client
	Logging     Logging
	Options     ProxyOptions

	from *kubeproxy.KubeProxyConfiguration // with defaults
	path string                            // of the file, if there is one
	data []byte                            // of the file
}

// Conntrack are the limits and timeouts asked of the kernel; 0 leaves what is
// there.
type Conntrack struct {
	MaxPerCore, Min              int // entries
	TCPEstablished, TCPCloseWait time.Duration
	UDP, UDPStream               time.Duration
	TCPBeLiberal                 bool
}

// IPVSSettings are those of ipvs mode alone; a timeout of 0 leaves what is there.
type IPVSSettings struct {
	Scheduler        string // empty means round robin
	ExcludeCIDRs     []netip.Prefix
	StrictARP        bool
	TCP, TCPFin, UDP time.Duration
}

// Client says how the API server is reached; without Kubeconfig and Master it is
// the one of the cluster that this process runs in.
type Client struct {
	Kubeconfig, Master              string
	AcceptContentTypes, ContentType string
	QPS                             float32
	Burst                           int
}

// Logging says what is logged, and how.
type Logging struct {
	Format    string // text or json
	Verbosity int    // -v
	VModule   string // pattern=N, with commas between
}

// New checks a KubeProxyConfiguration that has its defaults. All failures are
// reported together, each with the path that kube-proxy 1.37 gives its field.
func New(c *kubeproxy.KubeProxyConfiguration) (Config, error) {
	out := Config{
		Mode:                Mode(c.Mode),
		Hostname:            strings.ToLower(strings.TrimSpace(c.HostnameOverride)),
		DetectLocalMode:     string(c.DetectLocalMode),
		Bridge:              c.DetectLocal.BridgeInterface,
		InterfacePrefix:     c.DetectLocal.InterfaceNamePrefix,
		HealthzBindAddress:  c.HealthzBindAddress,
		MetricsBindAddress:  c.MetricsBindAddress,
		BindAddressHardFail: c.BindAddressHardFail,
		Profiling:           c.EnableProfiling,
		ConfigSyncPeriod:    c.ConfigSyncPeriod.Duration,
		OOMScoreAdj:         int(*c.OOMScoreAdj),
		Conntrack:           conntrackOf(&c.Conntrack),
		Client: Client{
			Kubeconfig:         c.ClientConnection.Kubeconfig,
			AcceptContentTypes: c.ClientConnection.AcceptContentTypes,
			ContentType:        c.ClientConnection.ContentType,
			QPS:                c.ClientConnection.QPS,
			Burst:              int(c.ClientConnection.Burst),
		},
		Logging: loggingOf(&c.Logging),
		from:    c,
	}
	out.setMode(c)
	return out, out.check(c)
}

// WithMode returns the same configuration for a mode that the host chose.
func (c Config) WithMode(m Mode) (Config, error) {
	from := c.from.DeepCopy()
	from.Mode = kubeproxy.ProxyMode(m)
	out, err := New(from)
	out.Client.Master, out.Options, out.path, out.data = c.Client.Master, c.Options, c.path, c.data
	return out, err
}

// setMode takes what every mode has in a section of its own; without a mode
// that of iptables counts.
func (c *Config) setMode(from *kubeproxy.KubeProxyConfiguration) {
	c.MasqueradeAll = from.IPTables.MasqueradeAll
	c.MasqueradeBit = int(*from.IPTables.MasqueradeBit)
	c.SyncPeriod, c.MinSyncPeriod = from.IPTables.SyncPeriod.Duration, from.IPTables.MinSyncPeriod.Duration
	// Loopback needs more than rules in the other modes.
	c.LocalhostNodePorts = *from.IPTables.LocalhostNodePorts && (c.Mode == Auto || c.Mode == IPTables)
	switch c.Mode {
	case NFTables:
		c.MasqueradeAll = from.NFTables.MasqueradeAll
		c.MasqueradeBit = int(*from.NFTables.MasqueradeBit)
		c.SyncPeriod, c.MinSyncPeriod = from.NFTables.SyncPeriod.Duration, from.NFTables.MinSyncPeriod.Duration
	case IPVS:
		c.SyncPeriod, c.MinSyncPeriod = from.IPVS.SyncPeriod.Duration, from.IPVS.MinSyncPeriod.Duration
		c.IPVS = IPVSSettings{
			Scheduler: from.IPVS.Scheduler,
			StrictARP: from.IPVS.StrictARP,
			TCP:       from.IPVS.TCPTimeout.Duration,
			TCPFin:    from.IPVS.TCPFinTimeout.Duration,
			UDP:       from.IPVS.UDPTimeout.Duration,
		}
	}
}

func conntrackOf(c *kubeproxy.KubeProxyConntrackConfiguration) Conntrack {
	return Conntrack{
		MaxPerCore:     int(*c.MaxPerCore),
		Min:            int(*c.Min),
		TCPEstablished: c.TCPEstablishedTimeout.Duration,
		TCPCloseWait:   c.TCPCloseWaitTimeout.Duration,
		UDP:            c.UDPTimeout.Duration,
		UDPStream:      c.UDPStreamTimeout.Duration,
		TCPBeLiberal:   c.TCPBeLiberal,
	}
}
