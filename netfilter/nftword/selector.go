package nftword

import "portolan/netfilter"

// field describes a selector: what a packet must be to have it, and the type.
type field struct {
	selector netfilter.Selector
	part     netfilter.Part
}

func named(s netfilter.Selector, t netfilter.DataType) field {
	return field{s, netfilter.PartOf(t)}
}

func integer(s netfilter.Selector, bytes uint8) field {
	return field{s, netfilter.Part{Type: netfilter.IntegerType, Bytes: bytes}}
}

// opaque is a field that is known but has no value that a walk could know.
var opaque = field{}

// meta are the keys of `meta`.
var meta = map[string]field{
	"l4proto": named(netfilter.MetaL4Proto, netfilter.ProtocolType), "nfproto": named(netfilter.MetaNFProto, netfilter.NFProtoType),
	"protocol": named(netfilter.MetaProtocol, netfilter.EthernetType), "mark": named(netfilter.MetaMark, netfilter.MarkType),
	"priority": named(netfilter.MetaPriority, netfilter.ClassIDType), "iifname": named(netfilter.MetaIIFName, netfilter.InterfaceType),
	"oifname": named(netfilter.MetaOIFName, netfilter.InterfaceType), "iif": named(netfilter.MetaIIF, netfilter.InterfaceType),
	"oif": named(netfilter.MetaOIF, netfilter.InterfaceType), "skuid": named(netfilter.MetaUser, netfilter.UserType), "skgid": named(netfilter.MetaGroup, netfilter.UserType),
	"length": opaque, "random": opaque, "secmark": opaque, "iiftype": opaque, "oiftype": opaque, "iifgroup": opaque, "oifgroup": opaque,
	"nftrace": opaque, "rtclassid": opaque, "ibriport": opaque, "obriport": opaque, "ibrname": opaque, "obrname": opaque, "pkttype": opaque, "cpu": opaque,
	"cgroup": opaque, "secpath": opaque, "ipsec": opaque, "time": opaque, "day": opaque, "hour": opaque, "iifkind": opaque, "oifkind": opaque, "sdif": opaque,
	"sdifname": opaque, "ibrpvid": opaque, "ibrvproto": opaque, "ibrhwaddr": opaque, "broute": opaque,
}

// bare are the keys that need no `meta` in front.
var bare = map[string]bool{
	"mark": true, "iif": true, "iifname": true, "iiftype": true, "iifgroup": true, "oif": true, "oifname": true, "oiftype": true, "oifgroup": true, "skuid": true,
	"skgid": true, "nftrace": true, "rtclassid": true, "ibriport": true, "obriport": true, "ibrname": true, "obrname": true, "pkttype": true, "cpu": true, "cgroup": true,
}

// header is a protocol header with its fields.
type header struct {
	proto  uint8
	family netfilter.Family
	fields map[string]field
}

var ports = map[string]field{"sport": named(netfilter.SourcePort, netfilter.PortType), "dport": named(netfilter.DestinationPort, netfilter.PortType)}

// with adds fields to the ports.
func with(more map[string]field) map[string]field {
	out := map[string]field{}
	for k, v := range ports {
		out[k] = v
	}
	for k, v := range more {
		out[k] = v
	}
	return out
}

func opaques(names ...string) map[string]field {
	out := map[string]field{}
	for _, n := range names {
		out[n] = opaque
	}
	return out
}

var headers = map[string]header{
	"ip": {family: netfilter.IPv4, fields: map[string]field{
		"saddr": named(netfilter.IPSaddr, netfilter.IPv4Type), "daddr": named(netfilter.IPDaddr, netfilter.IPv4Type), "protocol": named(netfilter.IPProtocol, netfilter.ProtocolType),
		"ttl": integer(netfilter.IPTTL, 1), "dscp": named(netfilter.IPDSCP, netfilter.DSCPType), "ecn": named(netfilter.IPECN, netfilter.ECNType), "version": integer(netfilter.IPVersion, 1),
		"hdrlength": integer(netfilter.IPHeaderLength, 1), "frag-off": integer(netfilter.IPFragOff, 2), "length": opaque, "id": opaque, "checksum": opaque, "tos": opaque,
	}},
	"ip6": {family: netfilter.IPv6, fields: map[string]field{
		"saddr": named(netfilter.IP6Saddr, netfilter.IPv6Type), "daddr": named(netfilter.IP6Daddr, netfilter.IPv6Type), "nexthdr": named(netfilter.IP6NextHeader, netfilter.ProtocolType),
		"hoplimit": integer(netfilter.IP6HopLimit, 1), "dscp": named(netfilter.IP6DSCP, netfilter.DSCPType), "version": integer(netfilter.IP6Version, 1), "length": opaque, "ecn": opaque, "flowlabel": opaque,
	}},
	"th":      {fields: ports},
	"tcp":     {proto: netfilter.TCP, fields: with(map[string]field{"flags": named(netfilter.TCPFlagBits, netfilter.TCPFlagType), "sequence": opaque, "ackseq": opaque, "doff": opaque, "reserved": opaque, "window": opaque, "checksum": opaque, "urgptr": opaque})},
	"udp":     {proto: netfilter.UDP, fields: with(opaques("length", "checksum"))},
	"udplite": {proto: 136, fields: with(opaques("csumcov", "checksum"))},
	"sctp":    {proto: netfilter.SCTP, fields: with(opaques("vtag", "checksum"))},
	"dccp":    {proto: 33, fields: with(opaques("type"))},
	"icmp": {proto: netfilter.ICMP, fields: map[string]field{
		"type": named(netfilter.ICMPTypeField, netfilter.ICMPTypeType), "code": named(netfilter.ICMPCodeField, netfilter.ICMPCodeType), "checksum": opaque, "id": opaque, "sequence": opaque, "gateway": opaque, "mtu": opaque,
	}},
	"icmpv6": {proto: netfilter.ICMPv6, fields: map[string]field{
		"type": named(netfilter.ICMPv6TypeField, netfilter.ICMPv6TypeType), "code": named(netfilter.ICMPv6CodeField, netfilter.ICMPv6CodeType), "checksum": opaque, "parameter-problem": opaque, "packet-too-big": opaque, "mtu": opaque, "id": opaque, "sequence": opaque, "max-delay": opaque, "taddr": opaque, "daddr": opaque,
	}},
	"igmp":  {proto: 2, fields: opaques("type", "mrt", "checksum", "group")},
	"esp":   {proto: 50, fields: opaques("spi", "sequence")},
	"ah":    {proto: 51, fields: opaques("nexthdr", "hdrlength", "reserved", "spi", "sequence")},
	"comp":  {proto: 108, fields: opaques("nexthdr", "flags", "cpi")},
	"gre":   {proto: 47, fields: opaques("flags", "version", "protocol", "key")},
	"ether": {fields: opaques("saddr", "daddr", "type")},
	"vlan":  {fields: opaques("id", "dei", "pcp", "cfi", "type")},
	"arp":   {fields: opaques("htype", "ptype", "hlen", "plen", "operation", "saddr", "daddr")},
	"rt":    {fields: opaques("classid", "nexthop", "mtu", "ipsec", "type", "hdrlength", "seg-left")},
	"rt0":   {fields: opaques("addr")},
	"rt2":   {fields: opaques("addr")},
	"rt4":   {fields: opaques("last-entry", "flags", "tag", "sid")},
	"hbh":   {fields: opaques("nexthdr", "hdrlength")},
	"frag":  {fields: opaques("nexthdr", "reserved", "frag-off", "reserved2", "more-fragments", "id")},
	"dst":   {fields: opaques("nexthdr", "hdrlength")},
	"mh":    {fields: opaques("nexthdr", "hdrlength", "type", "reserved", "checksum")},
	"srh":   {fields: opaques("last-entry", "flags", "tag", "sid", "seg-left")},
}

// ct are the keys of `ct`; those with a direction are in ctSide.
var ct = map[string]field{
	"state": named(netfilter.CTStateField, netfilter.StateType), "status": named(netfilter.CTStatusField, netfilter.StatusType), "direction": named(netfilter.CTDirection, netfilter.DirectionType),
	"mark": named(netfilter.CTMark, netfilter.MarkType), "l3proto": named(netfilter.CTL3Proto, netfilter.NFProtoType), "protocol": named(netfilter.CTProtocol, netfilter.ProtocolType),
	"expiration": opaque, "helper": opaque, "label": opaque, "zone": opaque, "id": opaque, "bytes": opaque, "packets": opaque, "avgpkt": opaque, "secmark": opaque, "event": opaque, "count": opaque,
}

var ctSide = map[string]field{
	"proto-src": named(netfilter.CTSourcePort, netfilter.PortType), "proto-dst": named(netfilter.CTDestinationPort, netfilter.PortType),
	"l3proto": ct["l3proto"], "protocol": ct["protocol"], "bytes": opaque, "packets": opaque, "avgpkt": opaque, "zone": opaque,
}

// expr makes a field an expression; text is what it is called.
func (f field) expr(text string, proto uint8, family netfilter.Family) netfilter.Expr {
	if f.selector == netfilter.NoSelector {
		return netfilter.Opaque{Text: text, Proto: proto, Family: family}
	}
	return netfilter.Selected{Selector: f.selector, Proto: proto, Family: family, Part: f.part}
}

// Meta gives the value of a key of `meta`.
func Meta(key string) (netfilter.Expr, bool) {
	f, ok := meta[key]
	return f.expr("meta "+key, 0, 0), ok
}

// Bare gives the value of a key that may stand without `meta`.
func Bare(key string) (netfilter.Expr, bool) {
	if !bare[key] {
		return nil, false
	}
	return Meta(key)
}

// IsHeader reports whether a word is the name of a protocol header.
func IsHeader(name string) bool { return headers[name].fields != nil }

// Header gives a field of a protocol header.
func Header(name, key string) (netfilter.Expr, bool) {
	h := headers[name]
	f, ok := h.fields[key]
	return f.expr(name+" "+key, h.proto, h.family), ok
}

// CT gives the value of a key of `ct`. direction is "", "original" or
// "reply"; family is "ip", "ip6" or "" before an address.
func CT(direction, family, key string) (netfilter.Expr, bool) {
	if direction == "" {
		f, ok := ct[key]
		return f.expr("ct "+key, 0, 0), ok
	}
	out := netfilter.Selected{Reply: direction == "reply"}
	switch key {
	case "saddr":
		out.Selector = netfilter.CTSaddr
	case "daddr":
		out.Selector = netfilter.CTDaddr
	default:
		f, ok := ctSide[key]
		if f.selector == netfilter.NoSelector || !ok {
			return netfilter.Opaque{Text: "ct " + direction + " " + key}, ok
		}
		out.Selector, out.Part = f.selector, f.part
		return out, true
	}
	switch family {
	case "ip":
		out.Family, out.Part = netfilter.IPv4, netfilter.PartOf(netfilter.IPv4Type)
	case "ip6":
		out.Family, out.Part = netfilter.IPv6, netfilter.PartOf(netfilter.IPv6Type)
	default:
		return nil, false
	}
	return out, true
}
