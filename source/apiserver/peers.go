package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"portolan/source/kube"
)

// Peers asks for all Nodes, once, sorted by name.
func (c *Client) Peers(ctx context.Context) ([]kube.Peer, error) {
	var list v1.NodeList
	if err := c.core.Get().Resource("nodes").Do(ctx).Into(&list); err != nil {
		return nil, fmt.Errorf("apiserver: %s: listing Nodes: %w", c.Host, err)
	}
	var out []kube.Peer
	for i := range list.Items {
		out = append(out, kube.ConvertPeer(&list.Items[i]))
	}
	slices.SortFunc(out, func(a, b kube.Peer) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
