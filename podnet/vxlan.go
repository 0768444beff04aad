package podnet

import (
	"fmt"

	"portolan/dataplane"
)

// What vxlan adds to a packet: outer IP, UDP, vxlan header and inner Ethernet,
// in bytes (RFC 7348). flannel takes 50 for both families, which is 20 too few
// over IPv6.
const (
	overheadIPv4 = 20 + 8 + 8 + 14
	overheadIPv6 = 40 + 8 + 8 + 14
)

// DefaultPort is Linux' UDP port for vxlan, which is older than IANA's 4789.
const DefaultPort = 8472

// DeviceOf returns the name of the vxlan device of a family.
func DeviceOf(f Family, vni int) string {
	if f == IPv6 {
		return fmt.Sprintf("flannel-v6.%d", vni)
	}
	return fmt.Sprintf("flannel.%d", vni)
}

// MTU is the largest packet of a pod to another node, in bytes.
func (t Topology) MTU() int {
	b := t.Config.Backend
	outer := t.Self.MTU
	if b.MTU != 0 {
		outer = b.MTU
	}
	switch {
	case b.Type == HostGW:
		return outer
	case t.Family == IPv6:
		return outer - overheadIPv6
	}
	return outer - overheadIPv4
}

// vxlanBase is the device, with the first address of the node's range: what a
// process of the node has as its source address when it calls a remote pod.
func vxlanBase(t Topology) []dataplane.Object {
	b, half := t.Config.Backend, t.Self.Half(t.Family)
	l := Link{Name: DeviceOf(t.Family, b.VNI), VNI: b.VNI, Device: t.Self.Device, Local: half.Addr, Port: b.Port, MTU: t.MTU(), MAC: half.MAC, Learning: b.Learning, GBP: b.GBP}
	if l.Port == 0 {
		l.Port = DefaultPort
	}
	return []dataplane.Object{l.Object(), Address{Device: l.Name, Addr: t.PodCIDR.Addr()}.Object()}
}

// vxlanPeer is what leads to one peer: a route to its range by way of its
// device's address, the station that has that address, and the node behind
// which the station is. Nothing is learned.
func vxlanPeer(t Topology, p Peer) []dataplane.Object {
	if p.Direct {
		return []dataplane.Object{directRoute(t, p)}
	}
	device := DeviceOf(t.Family, t.Config.Backend.VNI)
	via := p.PodCIDR.Addr()
	return []dataplane.Object{
		Neighbour{Device: device, Addr: via, MAC: p.MAC}.Object(),
		Forward{Device: device, MAC: p.MAC, Dst: p.PublicIP}.Object(),
		Route{Dst: p.PodCIDR, Via: via, Device: device, OnLink: true}.Object(),
	}
}

func directRoute(t Topology, p Peer) dataplane.Object {
	return Route{Dst: p.PodCIDR, Via: p.PublicIP, Device: t.Self.Device}.Object()
}
