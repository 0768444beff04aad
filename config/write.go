package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

// Written returns the configuration in the form of v1alpha1, with defaults, as
// kube-proxy writes it: periods and masqueradeAll of modes that are not used are
// zero. Without a mode those of the modes that may be chosen stay. Its JSON is
// what kube-proxy shows at /configz.
func (c Config) Written() *kubeproxy.KubeProxyConfiguration {
	out := c.from.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
	var zero metav1.Duration
	if c.Mode == NFTables || c.Mode == IPVS {
		out.IPTables.SyncPeriod, out.IPTables.MinSyncPeriod = zero, zero
	}
	if c.Mode == NFTables {
		out.IPTables.MasqueradeAll = false
	}
	if c.Mode == IPTables || c.Mode == IPVS {
		out.NFTables.SyncPeriod, out.NFTables.MinSyncPeriod, out.NFTables.MasqueradeAll = zero, zero, false
	}
	if c.Mode != IPVS {
		out.IPVS.SyncPeriod, out.IPVS.MinSyncPeriod = zero, zero
	}
	return out
}

// YAML returns Written as a file, and behind it our own options where there are
// some: what --config takes.
func (c Config) YAML() ([]byte, error) {
	text, err := yaml.Marshal(c.Written())
	if err != nil || c.Options.empty() {
		return text, err
	}
	more, err := yaml.Marshal(c.Options)
	return append(append(text, "---\n"...), more...), err
}
