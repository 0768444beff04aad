package iptables

import (
	"fmt"
	"net/netip"
	"strconv"

	"portolan/service"
)

// In the compact layout a shared chain holds no line of a Service but the ways to
// chains that do: by the last bits of an address, or by blocks of ports. Such bits are
// spread evenly whatever the networks are that addresses come from, so that the tree
// has at most 16 branches of 16 leaves, and depends on no Service but the one that
// asks for a way: of many that do, the last one takes it along.

// Words in the names of the chains of trees; that of a branch has an S more than its
// leaves.
var treeWords = map[string]string{
	natServices: "IP", filterServices: "IP", filterExternal: "EXT", filterProxyFW: "FW",
	natHairpin: "HP", natNodePorts: "NP", filterNodePortRefusals: "NP", filterNodePort: "HC",
}

// way leads from a shared chain to addresses that end in one byte.
type way struct {
	branch, leaf     string // containers
	toBranch, toLeaf string // rules
	branchName       string // of toBranch, among all that the shared chain holds
}

// newWays returns the ways from a shared chain, by the last byte of an address.
func newWays(root string, f service.Family) *[256]way {
	var out [256]way
	number := strconv.Itoa
	if f == service.IPv6 {
		number = func(n int) string { return strconv.FormatInt(int64(n), 16) }
	}
	prefix := tableOf(root) + "/" + ownPrefix + treeWords[root]
	for i := range out {
		from := i &^ 15
		w := &out[i]
		*w = out[from]
		if i == from {
			block := number(from) + "-" + number(from+15)
			w.branch = prefix + "S-" + block
			w.toBranch = "-d " + masked(f, from, 0xf0) + " -j " + chainOf(w.branch)
			// A name that no line in another table has: see turnsOf.
			w.branchName = tableOf(root) + " addresses " + block
		}
		w.leaf = prefix + "-" + number(i)
		w.toLeaf = "-d " + masked(f, i, 0xff) + " -j " + chainOf(w.leaf)
	}
	return &out
}

// masked is a destination of which only bits of the last byte count.
func masked(f service.Family, value, mask int) string {
	at := func(b int) netip.Addr {
		if f == service.IPv6 {
			return netip.AddrFrom16([16]byte{15: byte(b)})
		}
		return netip.AddrFrom4([4]byte{3: byte(b)})
	}
	return at(value).String() + "/" + at(mask).String()
}

// addressLine adds a line about an address to a shared chain, or to its tree. A claim
// asks for no way.
func (p *port) addressLine(root string, addr netip.Addr, key string, parts ...string) {
	if p.b.options.Layout == Standard {
		p.rule(root, servicesRank, key, parts...)
		return
	}
	w := p.b.wayTo(root, addr)
	if len(parts) > 0 {
		p.rule(root, servicesRank, w.branchName, w.toBranch)
		p.rule(w.branch, servicesRank, w.leaf, w.toLeaf)
		p.rule(w.leaf, 0, "") // is there, also if an older Service has the address
	}
	p.rule(w.leaf, servicesRank, key, parts...)
}

func (b *Backend) wayTo(root string, addr netip.Addr) *way {
	bytes := addr.AsSlice()
	return &b.ways[root][bytes[len(bytes)-1]]
}

// portBlock is how many ports lie in one leaf.
const portBlock = 64

// portLine is addressLine for a port of this node.
func (p *port) portLine(root string, protocol service.Protocol, port uint16, key string, parts ...string) {
	if p.b.options.Layout == Standard {
		p.rule(root, servicesRank, key, parts...)
		return
	}
	first := int(port) &^ (portBlock - 1)
	leaf := fmt.Sprintf("%s/%s%s-%s-%d", tableOf(root), ownPrefix, treeWords[root], protocol, first)
	if len(parts) > 0 {
		p.rule(root, servicesRank, fmt.Sprintf("%s ports %s %d", tableOf(root), protocol, first),
			"-m ", string(protocol), " -p ", string(protocol), " --dport ", strconv.Itoa(first), ":", strconv.Itoa(first+portBlock-1), " -j ", chainOf(leaf))
		p.rule(leaf, 0, "") // as in addressLine
	}
	p.rule(leaf, servicesRank, key, parts...)
}
