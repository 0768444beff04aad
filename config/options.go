package config

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	optionsVersion = "portolan.io/v1alpha1"
	optionsKind    = "ProxyOptions"
)

// ProxyOptions are the settings that kube-proxy does not have. They are a
// document of their own in the file of --config, or flags, which stand above the
// file.
type ProxyOptions struct {
	metav1.TypeMeta `json:",inline"`
	// Manifests are files or folders with Services, EndpointSlices and Nodes,
	// instead of the API server.
	Manifests []string `json:"manifests,omitempty"`
	// NodeIPs are addresses of this node, instead of those of its Node object.
	NodeIPs []string `json:"nodeIPs,omitempty"`
	// TCPReset has established connections to endpoints that are gone end with a
	// reset, where clients would wait until they give up by themselves.
	TCPReset bool `json:"tcpReset,omitempty"`
	// IPVSDrainTimeout is how long a TCP real server that is gone may keep its
	// connections in ipvs mode; 0 for as long as they last.
	IPVSDrainTimeout metav1.Duration `json:"ipvsDrainTimeout,omitzero"`
	// IPTables are the settings of iptables mode alone.
	IPTables IPTablesOptions `json:"iptables,omitzero"`
}

func (o *ProxyOptions) bind(set *pflag.FlagSet) {
	set.StringArrayVar(&o.Manifests, "manifests", nil, "file or folder with Services, EndpointSlices and Nodes, YAML or JSON, instead of the API server; repeatable")
	set.StringArrayVar(&o.NodeIPs, "node-ip", nil, "address of this node, instead of those of its Node object; repeatable")
	set.BoolVar(&o.TCPReset, "tcp-reset", false, "remove established TCP connections to endpoints that are gone, so that clients are reset by another one instead of waiting; needs nf_conntrack_tcp_loose=1 and an endpoint that is left")
	set.DurationVar(&o.IPVSDrainTimeout.Duration, "ipvs-drain-timeout", 0, "ipvs mode: how long a TCP real server that is gone may keep its connections; 0 for as long as they last")
	set.StringVar((*string)(&o.IPTables.Layout), "iptables-layout", "", "arrangement of rules in iptables mode: standard, which is kube-proxy's, or compact, for thousands of Services; empty means standard")
}

// check refuses what no value can be.
func (o ProxyOptions) check() error {
	if d := o.IPVSDrainTimeout.Duration; d < 0 {
		return fmt.Errorf("config: %s.ipvsDrainTimeout (--ipvs-drain-timeout): %v: must not be negative", optionsKind, d)
	}
	switch o.IPTables.Layout {
	case "", Standard, Compact:
		return nil
	}
	return fmt.Errorf("config: %s.iptables.layout (--iptables-layout): %q is neither %s nor %s", optionsKind, o.IPTables.Layout, Standard, Compact)
}

// empty tells whether nothing is asked for.
func (o ProxyOptions) empty() bool {
	return len(o.Manifests) == 0 && len(o.NodeIPs) == 0 && !o.TCPReset && o.IPVSDrainTimeout.Duration == 0 &&
		o.IPTables == IPTablesOptions{}
}

// Addrs returns NodeIPs as addresses.
func (o ProxyOptions) Addrs() ([]netip.Addr, error) {
	var out []netip.Addr
	var errs []error
	for i, text := range o.NodeIPs {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("config: %s.nodeIPs[%d] (--node-ip): %q is not an IP address", optionsKind, i, text))
			continue
		}
		out = append(out, addr.Unmap())
	}
	return out, errors.Join(errs...)
}
