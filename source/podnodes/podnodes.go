// Package podnodes is where a pod network learns of its nodes: from Node objects
// of the API server, or in manifests.
package podnodes

import (
	"context"
	"log/slog"
	"net/netip"

	v1 "k8s.io/api/core/v1"

	"portolan/podnet"
	"portolan/service"
	"portolan/source/apiserver"
	"portolan/source/kube"
	"portolan/source/manifests"
)

// FromAPI follows the Nodes of an API server until ctx ends.
func FromAPI(ctx context.Context, c *apiserver.Client, log *slog.Logger, tell func([]podnet.Node)) error {
	return c.FollowNodes(ctx, log, func(nodes []*v1.Node) { tell(convert(nodes)) })
}

// FromManifests follows the Nodes in files and folders until ctx ends. Problems
// of the files are told each time with the Nodes.
func FromManifests(ctx context.Context, paths []string, tell func([]podnet.Node, []manifests.Problem)) error {
	source := manifests.New(paths, kube.NewCluster(kube.Settings{}))
	return source.Watch(ctx, nil, func(s *service.Snapshot, problems []manifests.Problem) {
		if s == nil {
			tell(nil, problems)
			return
		}
		tell(convert(source.Nodes()), problems)
	})
}

func convert(nodes []*v1.Node) []podnet.Node {
	out := make([]podnet.Node, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, node(n))
	}
	return out
}

// node passes over what is no CIDR and no address: the API server lets nothing
// such in, and whoever needs it says that it is missing.
func node(n *v1.Node) podnet.Node {
	out := podnet.Node{Name: n.Name, Created: n.CreationTimestamp.Time, Annotations: n.Annotations}
	cidrs := n.Spec.PodCIDRs
	if len(cidrs) == 0 && n.Spec.PodCIDR != "" {
		cidrs = []string{n.Spec.PodCIDR}
	}
	for _, text := range cidrs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out.PodCIDRs = append(out.PodCIDRs, p.Masked())
		}
	}
	for _, a := range n.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == v1.NodeInternalIP {
			out.Addresses = append(out.Addresses, addr)
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeNetworkUnavailable {
			out.NetworkUp = c.Status == v1.ConditionFalse
		}
	}
	return out
}
