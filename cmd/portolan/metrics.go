package main

import (
	"github.com/spf13/pflag"

	backend "portolan/backend/iptables"
	"portolan/config"
	"portolan/kernel/iptables"
	"portolan/metrics"
	"portolan/service"
)

// newMetrics counts for the mode that was chosen.
func newMetrics(c config.Config, families []service.Family) *metrics.Metrics {
	o := metrics.Options{Mode: string(c.Mode), Families: families, Version: version, Commit: commit()}
	if c.Mode == config.IPTables {
		o.Packets = map[string]func() (uint64, error){
			"kubeproxy_iptables_ct_state_invalid_dropped_packets_total":     func() (uint64, error) { return iptables.ReadCounter(backend.InvalidDroppedCounter) },
			"kubeproxy_iptables_localhost_nodeports_accepted_packets_total": func() (uint64, error) { return iptables.ReadCounter(backend.LocalhostAcceptedCounter) },
		}
	}
	return metrics.New(o)
}

// pagesOf is what the metrics server says about the configuration: kube-proxy's
// part as kube-proxy does, and our own; and about the command line.
func pagesOf(c config.Config, set *pflag.FlagSet) metrics.Pages {
	var flags []metrics.Flag
	set.VisitAll(func(f *pflag.Flag) { flags = append(flags, metrics.Flag{Name: f.Name, Value: f.Value.String()}) })
	return metrics.Pages{
		Mode:      string(c.Mode),
		Configz:   map[string]any{"kubeproxy.config.k8s.io": c.Written(), "portolan.io": c.Options},
		Profiling: c.Profiling,
		Flags:     flags,
		Version:   version,
	}
}
