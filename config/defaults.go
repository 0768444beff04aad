package config

import (
	"net"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// Ports of the two servers.
const (
	healthzPort = "10256"
	metricsPort = "10249"
)

// SetDefaults fills in kube-proxy 1.37's defaults; a period of zero counts as
// not given. Two are not kube-proxy's: the mode stays open, and the least time
// between two writes of nftables mode is short, since a write costs what changed
// there, so that waiting saves nothing.
func SetDefaults(c *kubeproxy.KubeProxyConfiguration) {
	setDefault(&c.BindAddress, "0.0.0.0")
	health, metrics := "0.0.0.0", "127.0.0.1"
	if addr, err := netip.ParseAddr(c.BindAddress); err == nil && addr.Is6() {
		health, metrics = "::", "::1"
	}
	setServer(&c.HealthzBindAddress, health, healthzPort)
	setServer(&c.MetricsBindAddress, metrics, metricsPort)
	setDefault(&c.DetectLocalMode, kubeproxy.LocalMode(DetectClusterCIDR))
	setPeriods(&c.IPTables.SyncPeriod, &c.IPTables.MinSyncPeriod, time.Second)
	setPeriods(&c.IPVS.SyncPeriod, &c.IPVS.MinSyncPeriod, time.Second)
	setPeriods(&c.NFTables.SyncPeriod, &c.NFTables.MinSyncPeriod, 10*time.Millisecond)
	setDefault(&c.ConfigSyncPeriod.Duration, 15*time.Minute)
	setPointer(&c.IPTables.MasqueradeBit, 14)
	setPointer(&c.IPTables.LocalhostNodePorts, true)
	setPointer(&c.NFTables.MasqueradeBit, 14)
	setPointer(&c.OOMScoreAdj, -999)
	setPointer(&c.Conntrack.MaxPerCore, 32*1024)
	setPointer(&c.Conntrack.Min, 128*1024)
	setPointer(&c.Conntrack.TCPEstablishedTimeout, metav1.Duration{Duration: 24 * time.Hour})
	setPointer(&c.Conntrack.TCPCloseWaitTimeout, metav1.Duration{Duration: time.Hour})
	setDefault(&c.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	setDefault(&c.ClientConnection.QPS, 5)
	setDefault(&c.ClientConnection.Burst, 10)
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

// setServer fills in an address, or the port of a bare one.
func setServer(field *string, addr, port string) {
	setDefault(field, addr)
	if ip, err := netip.ParseAddr(*field); err == nil {
		*field = net.JoinHostPort(ip.String(), port)
	}
}

func setPeriods(period, least *metav1.Duration, leastDefault time.Duration) {
	setDefault(&period.Duration, 30*time.Second)
	setDefault(&least.Duration, leastDefault)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
