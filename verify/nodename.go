package verify

import (
	"fmt"
	"slices"
)

// nodeUnknown tells that no Node has the name of the host.
func (w *world) nodeUnknown() bool {
	name := w.in.Services.Node.Name
	return len(w.in.Nodes) > 0 && !slices.ContainsFunc(w.in.Nodes, func(n Node) bool { return n.Name == name })
}

// checkNodeName: the host is a Node of the cluster.
func checkNodeName(w *world) []Finding {
	if w.in.Services == nil || !w.nodeUnknown() {
		return nil
	}
	name := w.in.Services.Node.Name
	var similar string
	for _, n := range w.in.Nodes {
		if slices.ContainsFunc(n.IPs, w.own) {
			similar = n.Name
		}
	}
	fix := "give the proxy the Node's name with --hostname-override"
	if similar != "" {
		fix = "give the proxy --hostname-override " + similar + ": that Node has an address of this host"
	}
	return []Finding{{
		Code: NodeUnknown, Severity: Error, Object: "host name " + name, Owner: Owner{admin, "the name of the host, or --hostname-override"},
		Actual:   fmt.Sprintf("none of %d Nodes is called so: no endpoint counts as local, so that policy Local drops, and zones and pod networks are not known", len(w.in.Nodes)),
		Expected: "the name of a Node", Fix: fix,
	}}
}
