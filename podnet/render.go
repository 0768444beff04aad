package podnet

import "portolan/dataplane"

// Base returns what the node needs whatever its peers.
func Base(t Topology) []dataplane.Object {
	if t.Config.Backend.Type == VXLAN {
		return vxlanBase(t)
	}
	return nil
}

// Render returns what leads to one peer.
func Render(t Topology, p Peer) []dataplane.Object {
	if t.Config.Backend.Type == VXLAN {
		return vxlanPeer(t, p)
	}
	return hostGWPeer(t, p)
}

// OwnerOf is who asks for the objects of a peer.
func OwnerOf(p Peer) dataplane.Owner { return dataplane.Owner{Name: p.Name, Since: p.Since} }
