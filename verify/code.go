package verify

// Code names a kind of Finding. Codes are stable: scripts and alerts depend on
// them. docs/findings.md explains each.
type Code string

// What the rules do with the traffic of Services.
const (
	FrontendMissing    Code = "frontend-missing"    // no rule answers for the address
	FrontendRefused    Code = "frontend-refused"    // refused or dropped by the proxy's own rules
	ForeignDrop        Code = "foreign-drop"        // stopped by somebody else's rule
	RefusalMissing     Code = "refusal-missing"     // goes on where it should be refused or dropped
	RefusalDiffers     Code = "refusal-differs"     // dropped instead of refused, or the other way round
	SourceRangeOpen    Code = "source-range-open"   // a client outside of the source ranges is answered
	EndpointStale      Code = "endpoint-stale"      // goes to what is no endpoint
	EndpointMissing    Code = "endpoint-missing"    // an endpoint gets nothing
	SharesUneven       Code = "shares-uneven"       // endpoints get unequal shares
	MasqueradeMissing  Code = "masquerade-missing"  // the client's address stays
	MasqueradeUnwanted Code = "masquerade-unwanted" // the client's address is lost
	HairpinBroken      Code = "hairpin-broken"      // an endpoint does not reach itself
	AffinityMissing    Code = "affinity-missing"    // clients are not remembered
	AffinityUnwanted   Code = "affinity-unwanted"   // clients are remembered without being asked for
	AnswerLost         Code = "answer-lost"         // the answer does not come back
	RouteMissing       Code = "route-missing"       // no route, or one that refuses
	ChainLoop          Code = "chain-loop"          // chains call each other in a circle
	CannotTell         Code = "cannot-tell"         // something on the way is not understood
)

// Whose rules there are, beside what Services ask for.
const (
	ProxyMissing    Code = "proxy-missing"    // no Service rules at all
	JumpMissing     Code = "jump-missing"     // nothing leads to the Service rules
	FrontendStale   Code = "frontend-stale"   // rules answer for what no Service asks for
	DriftMissing    Code = "drift-missing"    // a rule of the proxy is missing
	DriftForeign    Code = "drift-foreign"    // a rule in the proxy's chains is not the proxy's
	SplitBrain      Code = "split-brain"      // Service rules in both variants of iptables
	Leftovers       Code = "leftovers"        // Service rules of another mode
	AddressConflict Code = "address-conflict" // two Services ask for one address
	MarkCollision   Code = "mark-collision"   // somebody else changes the masquerade mark
	DoubleSNAT      Code = "double-snat"      // a tunnel's packet is masqueraded again
	AccountMissing  Code = "nfacct-missing"   // rules count in an object that is not there
)

// How the host is set up.
const (
	ForwardingOff    Code = "ip-forward-off"
	BridgeFilterOff  Code = "bridge-nf-off"
	LocalnetOff      Code = "route-localnet-off"
	LocalnetOpen     Code = "localnet-open"
	ReversePath      Code = "rp-filter-drops"
	IPVSConntrackOff Code = "ipvs-conntrack-off"
	ConntrackFull    Code = "conntrack-full"
	ConntrackFails   Code = "conntrack-insert-failed"
	RangeOverlap     Code = "cidr-overlap"        // Services and pods share a network
	AddressTaken     Code = "address-taken"       // a cluster IP is an interface's address
	PodsUnknown      Code = "pods-unknown"        // pods outside of the cluster CIDR
	PortRange        Code = "nodeport-local-port" // NodePorts within the range of local ports
	PortListener     Code = "nodeport-listener"   // a process listens on a NodePort
	NodeUnknown      Code = "node-unknown"        // no Node has the host's name
	GatewayMAC       Code = "host-gw-shared-mac"  // routes to pods by a fabric that does not know them
)

// Codes lists all of them.
func Codes() []Code {
	return []Code{
		FrontendMissing, FrontendRefused, ForeignDrop, RefusalMissing, RefusalDiffers, SourceRangeOpen, EndpointStale, EndpointMissing, SharesUneven,
		MasqueradeMissing, MasqueradeUnwanted, HairpinBroken, AffinityMissing, AffinityUnwanted, AnswerLost, RouteMissing, ChainLoop, CannotTell,
		ProxyMissing, JumpMissing, FrontendStale, DriftMissing, DriftForeign, SplitBrain, Leftovers, AddressConflict, MarkCollision, DoubleSNAT, AccountMissing,
		ForwardingOff, BridgeFilterOff, LocalnetOff, LocalnetOpen, ReversePath, IPVSConntrackOff, ConntrackFull, ConntrackFails,
		RangeOverlap, AddressTaken, PodsUnknown, PortRange, PortListener, NodeUnknown, GatewayMAC,
	}
}
