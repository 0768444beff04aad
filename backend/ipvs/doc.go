// Package ipvs programs Services as kube-proxy 1.37 does in ipvs mode: a virtual
// server for each address and port, addresses on the dummy device kube-ipvs0, and a
// small number of iptables rules that match with sets.
//
// What IPVS cannot express, a different answer by who asks, is done by rules and sets
// of our own, whose names begin with KUBE-PORTOLAN-; see inside.go.
//
// sets.go and rules.go know the names; render.go writes what a Service asks for, as
// objects: a virtual server with its real servers and the sets that it is in is one
// (target.go), so that two Services cannot share it. base.go writes what no Service asks
// for. observe.go reads them from the kernel, and
// apply.go writes a plan, servers in server.go and rules in restore.go. drain.go
// removes real servers when their connections have ended.
package ipvs
