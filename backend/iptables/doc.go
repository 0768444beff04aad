// Package iptables programs Services as kube-proxy 1.37 does in iptables mode:
// the same chains, names, hashes, rule texts and comments, so that tools, habits
// and components that know them keep working.
//
// Every line of a chain is an object that the Service it serves owns; a chain is
// what is written. Render and Base are pure; Observe, Apply and Cleanup talk to
// the kernel through the iptables programs.
//
// render.go writes the lines of a Service, with external.go for addresses that
// are reached from outside and balance.go for the choice of an endpoint; base.go
// writes what no Service asks for, and chains.go knows the names. In the compact layout
// compact.go and tree.go have other chains. observe.go reads what is there; apply.go
// writes a plan, as restoretext.go words it, in two steps where twosteps.go says so.
// glance.go looks at a few things when others change something, adopt.go and dump.go read
// what another program or listing holds, and counters.go and dropped.go count.
//
// Bodies are rules without "-A CHAIN", in the form in which they are written,
// which is also the canonical form of kernel/iptables. That is how Observe
// recognises them.
package iptables
