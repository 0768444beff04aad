package podnet

import "portolan/dataplane"

// hostGWPeer is a plain route to the peer's range by way of the peer, which has
// to be on the same link.
func hostGWPeer(t Topology, p Peer) []dataplane.Object {
	return []dataplane.Object{directRoute(t, p)}
}
