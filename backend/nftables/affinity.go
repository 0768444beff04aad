package nftables

import (
	"crypto/sha256"
	"encoding/base32"

	"portolan/service"
)

// Affinity has no object of a single Service but elements. A scope is what
// shares a client's choice: all addresses of a Service port that use the same
// list of endpoints. It is a number in the kernel:
//
//	affinity-ids {frontend : scope}               sets the priority of the packet
//	affinity {client . protocol . scope : endpoint}  is asked first
//	affinity-learn {scope : goto learn-SECONDS}   right after translation, in the
//	    same hook: remembers where the packet goes now, or starts its time anew,
//	    and sets the priority back
//
// The priority of a packet is free there: what a forwarded one has is set from
// its TOS after that, and only the first packet of a connection is touched.

// scopeOf names the scope of a frontend. Addresses whose outside clients use the
// endpoints of this node remember apart from those that use all.
func scopeOf(f service.Frontend) string {
	name := f.PortName.String()
	if f.Route(service.FromOutside).Policy == service.Local {
		name += "/local"
	}
	const most = 120 // nft takes comments of up to 127 bytes
	if len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:most-17] + "~" + base32.StdEncoding.EncodeToString(sum[:10])
}

// scopeRule puts the scope of the frontend where stickyRule and the learning
// chain find it.
func (b *Backend) scopeRule(k balancer) string {
	set := affinityIDs
	if k.nodePort {
		set = affinityPortIDs
	}
	return "meta priority set " + b.words.key(k.nodePort) + " map @" + set
}

func (b *Backend) client() string {
	return b.words.ip + " saddr . meta l4proto . meta priority"
}

// stickyRule translates to the endpoint that the client had.
func (b *Backend) stickyRule() string {
	return "dnat " + b.words.ip + " to " + b.client() + " map @" + affinity
}

// affinityObjects are asked for by every Service with affinity.
func (b *Backend) affinityObjects(timeout string) structure {
	return kept(&b.common, &b.common.learners, timeout, b.makeLearners)
}

func (b *Backend) makeLearners(timeout string) structure {
	var out structure
	for _, name := range []string{affinity, affinityIDs, affinityPortIDs, affinityLearn} {
		out.sets = append(out.sets, b.set(name))
	}
	const learn = "ct state new ct status dnat meta priority vmap @" + affinityLearn
	out.chains = append(out.chains, chainObjects("affinity-prerouting", "type filter hook prerouting"+afterDNAT, learn)...)
	out.chains = append(out.chains, chainObjects("affinity-output", "type filter hook output"+afterDNAT, learn)...)
	out.chains = append(out.chains, chainObjects("learn-"+timeout, "update @"+affinity+" { "+b.client()+" timeout "+timeout+"s : "+
		b.words.ip+" daddr . th dport } meta priority set none")...)
	return out
}
