package iptables

import (
	"context"
	"fmt"
	"strings"

	"portolan/kernel/iptables"
)

// WithoutComments tells whether the endpoint rules that are in force, ours or
// kube-proxy's, were written for a large cluster, without comments. A start goes
// on from there, so that a cluster between the two thresholds is not rewritten.
func WithoutComments(ctx context.Context, tool *iptables.Tool) (bool, error) {
	for line, err := range tool.SaveAll(ctx, tool.Filled("nat")...) {
		if err != nil {
			return false, fmt.Errorf("iptables: read the endpoint rules in force: %w", err)
		}
		if strings.HasPrefix(line, "-A KUBE-SEP-") {
			return !strings.Contains(line, "--comment"), nil
		}
	}
	return false, nil
}
