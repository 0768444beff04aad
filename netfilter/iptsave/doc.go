// Package iptsave reads iptables rules as text: what iptables-save and
// ip6tables-save print (both variants, with or without counters), input of
// iptables-restore, `iptables -S`, single command lines, and the listings of
// `iptables -L -n -v [-x]`.
//
// What a module does not understand becomes netfilter.Unknown. Malformed text
// is an error that names file and line.
//
// save.go reads what the save programs print, command.go command lines, and listing.go and
// words.go listings, which they first turn back into rules. Rules of all three are read by
// rule.go, and each module in it by match.go, target.go, gather.go, header.go or
// conntrack.go.
package iptsave
