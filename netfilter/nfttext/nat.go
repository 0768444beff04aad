package nfttext

import (
	"strings"

	"portolan/netfilter"
)

var natKinds = map[string]netfilter.NATKind{"snat": netfilter.SNAT, "dnat": netfilter.DNAT, "masquerade": netfilter.Masquerade, "redirect": netfilter.Redirect}

// nat reads what follows snat, dnat, masquerade or redirect.
func (r *rule) nat(what string) bool {
	n := netfilter.Rewrite{Kind: natKinds[what], Family: r.table.Family}
	if n.Kind == netfilter.Masquerade || n.Kind == netfilter.Redirect {
		n.Family = 0
		if r.words("to") && !r.natPort(&n) {
			return false
		}
		return r.natFlags(&n)
	}
	switch {
	case r.words("ip"):
		n.Family = netfilter.IPv4
	case r.words("ip6"):
		n.Family = netfilter.IPv6
	}
	if r.words("prefix") || r.words("interval") {
		return false // a map of networks to networks
	}
	withPort := false
	if r.words("addr") {
		if !r.peek().is(".") {
			return false
		}
		r.next()
		if !r.words("port") {
			return false
		}
		withPort = true
	}
	_ = r.words("to")
	if r.peek().is(":") {
		if !r.natPort(&n) {
			return false
		}
		return r.natFlags(&n)
	}
	if !r.natAddr(&n) {
		return false
	}
	if _, constant := n.Addr.(netfilter.Constant); constant && withPort {
		return false // "addr . port to 1.2.3.4 . 80" is for maps only
	}
	if r.peek().is(":") && !r.natPort(&n) {
		return false
	}
	return r.natFlags(&n)
}

func addrPart(f netfilter.Family) netfilter.Part {
	if f == netfilter.IPv6 {
		return netfilter.PartOf(netfilter.IPv6Type)
	}
	return netfilter.PartOf(netfilter.IPv4Type)
}

// natAddr reads the address: "1.2.3.4-1.2.3.9", "[fd00::1]", "ip saddr map
// @x", "1.2.3.4 . 80".
func (r *rule) natAddr(n *netfilter.Rewrite) bool {
	if n.Family == 0 {
		return false
	}
	p := addrPart(n.Family)
	if r.peek().is("[") {
		return r.bracketed(n, p)
	}
	data := []netfilter.Part{p, netfilter.PartOf(netfilter.PortType)}
	pos := r.pos
	if e, ok := r.or(p); ok && !r.peek().word("map") && !r.peek().is(".") {
		n.Addr = e
		return true
	}
	r.pos = pos
	key, ok := r.concat()
	if !ok || !r.peek().word("map") {
		return false
	}
	e, ok := r.mapped(key, data)
	if !ok {
		return false
	}
	m := e.(netfilter.Mapped)
	n.Addr = m
	return true
}

// bracketed reads "[fd00::1]-[fd00::5]".
func (r *rule) bracketed(n *netfilter.Rewrite, p netfilter.Part) bool {
	r.next()
	first, last, ok := r.value(p)
	if !ok || !r.next().is("]") {
		return false
	}
	if t := r.peek(); t.kind == word && t.text == "-" {
		r.next()
		if !r.next().is("[") {
			return false
		}
		if _, last, ok = r.value(p); !ok || !r.next().is("]") {
			return false
		}
	}
	n.Addr = netfilter.Constant{First: first, Last: last, Part: p}
	return true
}

// natPort reads ":80", ":80-90", ":tcp dport map @x", and in redirect also
// without the colon.
func (r *rule) natPort(n *netfilter.Rewrite) bool {
	if r.peek().is(":") {
		r.next()
	}
	e, ok := r.wanted([]netfilter.Part{netfilter.PartOf(netfilter.PortType)})
	n.Port = e
	return ok
}

// natFlags reads random, fully-random and persistent, in any order.
func (r *rule) natFlags(n *netfilter.Rewrite) bool {
	for {
		t := r.peek()
		switch {
		case t.word("random"):
			n.Random = true
		case t.word("fully-random"):
			n.RandomFully = true
		case t.word("persistent"):
			n.Persistent = true
		case t.is(","):
		default:
			r.add(*n)
			return true
		}
		r.next()
	}
}

// rejects are the names for what a rule answers with, as iptables writes
// them; icmpx, of both families, is kept.
var rejects = map[string]string{
	"icmp net-unreachable": "icmp-net-unreachable", "icmp host-unreachable": "icmp-host-unreachable", "icmp prot-unreachable": "icmp-proto-unreachable",
	"icmp port-unreachable": "icmp-port-unreachable", "icmp net-prohibited": "icmp-net-prohibited", "icmp host-prohibited": "icmp-host-prohibited",
	"icmp admin-prohibited": "icmp-admin-prohibited", "icmpv6 no-route": "icmp6-no-route", "icmpv6 admin-prohibited": "icmp6-adm-prohibited",
	"icmpv6 addr-unreachable": "icmp6-addr-unreachable", "icmpv6 port-unreachable": "icmp6-port-unreachable", "icmpv6 policy-fail": "icmp6-policy-fail",
	"icmpv6 reject-route": "icmp6-reject-route", "icmpx port-unreachable": "icmpx-port-unreachable", "icmpx admin-prohibited": "icmpx-admin-prohibited",
	"icmpx no-route": "icmpx-no-route", "icmpx host-unreachable": "icmpx-host-unreachable",
}

// reject reads "with icmp type port-unreachable" and the like.
func (r *rule) reject() bool {
	if !r.words("with") {
		with := map[netfilter.Family]string{netfilter.IPv4: "icmp-port-unreachable", netfilter.IPv6: "icmp6-port-unreachable"}[r.table.Family]
		if with == "" {
			with = "icmpx-port-unreachable"
		}
		r.add(netfilter.Reject{With: with})
		return true
	}
	if r.words("tcp", "reset") {
		r.needs(netfilter.MetaL4Proto, netfilter.ProtocolType, uint64(netfilter.TCP), "meta l4proto tcp")
		r.add(netfilter.Reject{With: "tcp-reset"})
		return true
	}
	kind := r.next()
	_ = r.words("type") || r.words("code")
	code := r.next()
	with := rejects[kind.text+" "+code.text]
	if with == "" {
		if kind.text != "icmp" && kind.text != "icmpv6" && kind.text != "icmpx" || code.kind != word {
			return false
		}
		with = strings.Replace(kind.text, "v6", "6", 1) + "-" + code.text
	}
	if r.table.Family == 0 && kind.text == "icmp" {
		r.needs(netfilter.MetaNFProto, netfilter.NFProtoType, 2, "meta nfproto ipv4")
	} else if r.table.Family == 0 && kind.text == "icmpv6" {
		r.needs(netfilter.MetaNFProto, netfilter.NFProtoType, 10, "meta nfproto ipv6")
	}
	r.add(netfilter.Reject{With: with})
	return true
}

// needs adds a condition that nft loads before an answer which only some
// packets can have, and may leave out of its listing.
func (r *rule) needs(s netfilter.Selector, t netfilter.DataType, value uint64, text string) {
	p := netfilter.PartOf(t)
	v := netfilter.Bytes(value, p.Bytes)
	c := netfilter.Compare{Left: netfilter.Selected{Selector: s, Part: p}, Right: netfilter.Constant{First: v, Last: v, Part: p}, Text: text}
	if n := len(r.Statements); n > 0 && r.Statements[n-1] == netfilter.Statement(c) {
		return
	}
	r.add(c)
}

// tproxy reads "ip to 127.0.0.1:5000".
func (r *rule) tproxy() bool {
	n := netfilter.Rewrite{Family: r.table.Family}
	switch {
	case r.words("ip"):
		n.Family = netfilter.IPv4
	case r.words("ip6"):
		n.Family = netfilter.IPv6
	}
	if !r.words("to") {
		return false
	}
	if !r.peek().is(":") && !r.natAddr(&n) {
		return false
	}
	if r.peek().is(":") && !r.natPort(&n) {
		return false
	}
	r.add(netfilter.Transparent{Family: n.Family, Addr: n.Addr, Port: n.Port})
	return true
}
