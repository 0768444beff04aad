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
	HostStops          Code = "host-stops"          // the host itself discards the packet
	CannotTell         Code = "cannot-tell"         // something on the way is not understood
)
