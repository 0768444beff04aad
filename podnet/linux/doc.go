// Package linux observes and writes what podnet decides: links, addresses,
// neighbours, forwarding entries and routes over rtnetlink, and the masquerade
// and forward rules through iptables-restore or nf_tables. All work in the
// network namespace in which they are called.
//
// discover.go finds the external interface. network.go observes links, addresses, neighbours
// and routes, apply.go writes them, and changes.go tells when others did. iptables.go and
// nftables.go are the rules, in one or the other.
package linux
