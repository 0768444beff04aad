// Package conntrack decides which tracked connections no longer lead anywhere,
// and removes them: the endpoint of a connection is chosen with its first packet,
// and kept for as long as the kernel remembers it, whatever the rules say by then.
//
// What is decided is in index.go (who answers at an address), stale.go (does a
// flow lead anywhere) and scope.go (which flows may a change have touched), all
// on values. reconciler.go does it: beside the writing of rules, never in its way.
//
// load.go counts what Services and endpoints carry, and shed.go says what can be done
// about endpoints that carry too much; rebalance.go does that.
package conntrack
