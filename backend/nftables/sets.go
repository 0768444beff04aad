package nftables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan/kernel/nft"
)

// Names of the sets and maps that exist once.
const (
	serviceIPs          = "service-ips"           // frontend -> number of a chain
	nodePorts           = "nodeports"             // NodePort -> number of a chain
	balancers           = "balancers"             // number -> chain that balances
	noEndpoints         = "no-endpoints"          // frontend -> refused or dropped
	noEndpointNodePorts = "no-endpoint-nodeports" // NodePort -> refused or dropped
	clusterIPs          = "cluster-ips"           // addresses of which other ports are refused
	nodePortIPs         = "nodeport-ips"          // addresses on which NodePorts answer
	hairpin             = "hairpin"               // endpoints on this node that may reach themselves
	limited             = "limited"               // frontends with source ranges
	sources             = "sources"               // frontend with a range of its
	affinityIDs         = "affinity-ids"          // frontend -> scope
	affinityPortIDs     = "affinity-nodeport-ids" // NodePort -> scope
	affinityScopes      = "affinity-scopes"       // scopes, for their names
	affinityLearn       = "affinity-learn"        // upper bits of a scope -> chain that remembers
	affinity            = "affinity"              // client in scope -> its endpoint
	refused             = "refused"               // how often frontends were refused
	discarded           = "discarded"             // how often frontends dropped, without a word
	barred              = "barred"                // how often clients outside of the ranges were dropped
)

// Prefixes of the maps of endpoints, before one or two counts.
const (
	slotMap     = "eps-"
	portSlotMap = "np-eps-"
)

// affinityAt is, before a port, the map of clients whose endpoint has that port.
const affinityAt = "affinity-"

// affinitySize is the most clients that one map remembers; who comes beyond it is
// balanced without.
const affinitySize = 1 << 18

// countedSize is the most frontends of which is counted what they do not let through.
// A node port counts once for each address of the node.
const countedSize = 1 << 16

// part is one part of a key.
type part uint8

const (
	address part = iota
	protocol
	port
	slot
	number      // stands for a chain that balances or remembers, or for an affinity scope
	lastAddress // the last 96 bits of an IPv6 address
)

// holds is what a map maps to.
type holds uint8

const (
	nothing holds = iota
	anEndpoint
	anAddress
	aVerdict
	aChain // the number of one that balances
	aScope // the number of one
)

// shape is a kind of set.
type shape struct {
	key     []part
	holds   holds
	ranges  bool   // the last part of the key may be a range
	dynamic uint32 // not 0: filled by the kernel, up to so many
}

var shapes = map[string]*shape{
	serviceIPs:          {key: []part{address, protocol, port}, holds: aChain},
	nodePorts:           {key: []part{protocol, port}, holds: aChain},
	balancers:           {key: []part{number}, holds: aVerdict},
	noEndpoints:         {key: []part{address, protocol, port}, holds: aVerdict},
	noEndpointNodePorts: {key: []part{protocol, port}, holds: aVerdict},
	clusterIPs:          {key: []part{address}},
	nodePortIPs:         {key: []part{address}},
	hairpin:             {key: []part{address, address, protocol, port}},
	limited:             {key: []part{address, protocol, port}},
	sources:             {key: []part{address, protocol, port, address}, ranges: true},
	affinityIDs:         {key: []part{address, protocol, port}, holds: aScope},
	affinityPortIDs:     {key: []part{protocol, port}, holds: aScope},
	affinityScopes:      {key: []part{number}},
	affinityLearn:       {key: []part{number}, holds: aVerdict},
	affinity:            {key: []part{address, protocol, number}, holds: anEndpoint, dynamic: affinitySize},
	refused:             {key: []part{address, protocol, port}, dynamic: countedSize},
	discarded:           {key: []part{address, protocol, port}, dynamic: countedSize},
	barred:              {key: []part{address, protocol, port}, dynamic: countedSize},
}

var (
	slotShape     = &shape{key: []part{address, protocol, port, slot}, holds: anEndpoint}
	portSlotShape = &shape{key: []part{protocol, port, slot}, holds: anEndpoint}
	portMapShape  = &shape{key: []part{protocol, port}, holds: aVerdict}
	clientShape   = &shape{key: []part{lastAddress, number}, holds: anAddress, dynamic: affinitySize}
)

// shapeOf returns the shape of a set by its name, and whether it is one of ours.
func shapeOf(name string) (*shape, bool) {
	if s, ok := shapes[name]; ok {
		return s, true
	}
	if port, is := strings.CutPrefix(name, affinityAt); is && isPort(port) {
		return clientShape, true
	}
	if seconds, is := strings.CutSuffix(strings.TrimPrefix(name, learnPrefix), portsSuffix); is && strings.HasPrefix(name, learnPrefix) && isCount(seconds) {
		return portMapShape, true
	}
	counts, nodePort := strings.CutPrefix(name, portSlotMap)
	if !nodePort {
		var is bool
		if counts, is = strings.CutPrefix(name, slotMap); !is {
			return nil, false
		}
	}
	counts, turns, own := strings.Cut(counts, turnsWord)
	if own && len(turns) != turnsLength {
		return nil, false
	}
	first, second, pair := strings.Cut(counts, "-")
	if !isCount(first) || (pair && !isCount(second)) {
		return nil, false
	}
	if nodePort {
		return portSlotShape, true
	}
	return slotShape, true
}

func isCount(s string) bool {
	n, err := strconv.ParseUint(s, 10, 17)
	return err == nil && strconv.FormatUint(n, 10) == s
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// isClients tells whether a set is what is remembered of clients.
func (s *shape) isClients() bool { return s.dynamic > 0 && s.holds != nothing }

// isSlots tells whether a set maps slots to endpoints.
func (s *shape) isSlots() bool { return s.key[len(s.key)-1] == slot }

// ofFrontends tells whether the elements of a set are parts of objects in the
// container of frontends.
func (s *shape) ofFrontends(set string) bool {
	switch set {
	case serviceIPs, nodePorts, noEndpoints, noEndpointNodePorts, limited, sources:
		return true
	}
	return s.isSlots() || s.holds == aScope
}

// holdsNumber tells whether a set maps to what is another's key.
func (s *shape) holdsNumber() bool { return s.holds == aChain || s.holds == aScope }

// leadsByNumber tells whether a set maps numbers to chains.
func leadsByNumber(set string) bool { return set == balancers || set == affinityLearn }

// Containers of what gives numbers their meaning: the elements of balancers,
// affinity-learn and affinity-scopes.
const (
	balancing = "map/" + balancers
	learners  = "map/" + affinityLearn
	scopes    = "set/" + affinityScopes
)

// container is where the elements of another set are kept.
func (s *shape) container(name string) string {
	if s.holds == nothing {
		return "set/" + name
	}
	return "map/" + name
}

// setOf returns the set of a shape for the kernel.
func (w *words) setOf(name string, s *shape) nft.Set {
	set := nft.Set{Name: name}
	var types []nft.Type
	for _, p := range s.key {
		typ, length := w.partType(p)
		types = append(types, typ)
		set.KeyLen += uint32((length + 3) &^ 3)
		if s.ranges {
			set.Fields = append(set.Fields, uint32(length))
		}
	}
	set.KeyType = nft.Concat(types...)
	switch s.holds {
	case anEndpoint:
		set.DataType, set.DataLen = nft.Concat(w.addrType, nft.TypePort), uint32(w.addrLen+4)
	case anAddress:
		set.DataType, set.DataLen = w.addrType, uint32(w.addrLen)
	case aVerdict:
		set.DataType = nft.TypeVerdict
	case aChain, aScope:
		set.DataType, set.DataLen = nft.TypeClassID, 4
	}
	if s.ranges {
		set.Flags = nft.FlagInterval | nft.FlagConcat
	}
	if s.dynamic > 0 {
		set.Flags, set.Size = nft.FlagDynamic|nft.FlagTimeout, s.dynamic
	}
	switch {
	case s.isSlots():
		set.Userdata = w.slotUserdata(s)
	case s.key[0] == lastAddress:
		set.Userdata = w.clientUserdata()
	case s.holdsNumber() || s.key[0] == number:
		set.Userdata = numberUserdata(s)
	}
	return set
}

// partType is the type of a part for nft, and its length in bytes.
// keyLength is how long the keys of a set are. An element for all others ("*") has none.
func (w *words) keyLength(s *shape) (bytes int) {
	for _, p := range s.key {
		_, length := w.partType(p)
		bytes += (length + 3) &^ 3
	}
	return bytes
}

func (w *words) partType(p part) (nft.Type, int) {
	switch p {
	case address:
		return w.addrType, w.addrLen
	case protocol:
		return nft.TypeProto, 1
	case port:
		return nft.TypePort, 2
	case slot:
		return nft.TypeInteger, 4
	case number:
		return nft.TypeClassID, 4
	case lastAddress:
		return nft.TypeInteger, 12
	}
	panic(fmt.Sprintf("nftables: unknown part of a key %d", p))
}

// declaration is the set in nft's words, between its name and its elements.
func (w *words) declaration(s *shape) string {
	var b strings.Builder
	switch {
	case s.isSlots():
		fmt.Fprintf(&b, "typeof %s . numgen random mod 65536 : %s daddr . th dport;", w.key(len(s.key) == 3), w.ip)
		return b.String()
	case s.key[0] == lastAddress:
		return fmt.Sprintf("typeof %s . meta priority : ip6 daddr; size %d; flags dynamic,timeout;", lastBits, s.dynamic)
	}
	b.WriteString("type ")
	for i, p := range s.key {
		if i > 0 {
			b.WriteString(" . ")
		}
		b.WriteString([...]string{address: w.typeName, protocol: "inet_proto", port: "inet_service", number: "classid"}[p])
	}
	b.WriteString([...]string{nothing: "", anEndpoint: " : " + w.typeName + " . inet_service", aVerdict: " : verdict", aChain: " : classid", aScope: " : classid"}[s.holds])
	b.WriteString(";")
	if s.ranges {
		b.WriteString(" flags interval;")
	}
	if s.dynamic > 0 {
		fmt.Fprintf(&b, " size %d; flags dynamic,timeout;", s.dynamic)
	}
	return b.String()
}

// sameSet tells whether the kernel's set is ours: the same bytes mean the same
// things.
func sameSet(have, want nft.Set) bool {
	flags := want.Flags
	if want.DataType != 0 {
		flags |= nft.FlagMap
	}
	if have.Flags != flags || have.KeyType != want.KeyType || have.KeyLen != want.KeyLen || have.DataType != want.DataType || have.Size != want.Size {
		return false
	}
	if want.DataType != nft.TypeVerdict && have.DataLen != want.DataLen {
		return false
	}
	return slices.Equal(have.Fields, want.Fields) && (want.Userdata == nil || string(have.Userdata) == string(want.Userdata))
}
