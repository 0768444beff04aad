// Package linux observes and writes what podnet decides: links, addresses,
// neighbours, forwarding entries and routes over rtnetlink, and the masquerade
// and forward rules through iptables-restore or nf_tables. All work in the
// network namespace in which they are called.
package linux
