// Package netfilter gives one meaning to what a Linux host does with packets:
// hooks, tables, chains and rules as iptables knows them, and everything else
// on the host that decides about a packet (addresses, routes, sysctls, sets,
// connection tracking). Parsers turn text into these types, netfilter/live
// turns the running kernel into them, and trace walks a packet through them.
//
// The package reads; it shares nothing with the rooms that write rules, so
// that a mistake in one half cannot hide in the other.
//
// Begin with host.go, which is all that is known of a host, and table.go, which is its
// rules. A rule of iptables is made of matches (match.go, matchrare.go) and a target
// (target.go); a rule of nft of statements (statement.go) over expressions (expr.go) and
// sets (nftset.go). hook.go and athook.go say in which order tables are asked, and fib.go
// routes.
package netfilter
