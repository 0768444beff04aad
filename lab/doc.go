// Package lab builds little clusters out of network namespaces on this machine:
// nodes with a pod bridge each, pods that say who they are and whom they saw,
// an outside client, and a switch between them. Packets in a lab are real; only
// the machines are not.
//
// A lab is one process. Namespaces are anonymous: they exist as long as this
// process holds them, so the kernel removes every interface, address and rule of
// a lab when the process ends, however it ends. Servers and clients are sockets
// of this process that were created inside a namespace (a socket stays in the
// namespace of the thread that made it), so a lab needs no helper programs; iptables
// only makes it a little better, see prohibit.
//
// The network of a lab:
//
//	client 192.0.2.200        node1 192.0.2.11          node2 192.0.2.12
//	   eth0 ---------- switch ---------- eth0 -- cni0 10.244.1.1 -- eth0 pod
//
// Every address has an IPv6 sibling. Nodes know plain routes to each other's pod
// networks; the client sends what it wants of the Service networks to one node,
// node1 unless the topology says otherwise. A packet that no node answers for
// leaves by the default route to a gateway, which says that it is prohibited.
//
// Begin with lab.go and topology.go: what is built, and of what. host.go is one network stack
// in a namespace (namespace.go), pod.go answers and dial.go asks. command.go runs programs in a
// host, sniff.go listens, attach.go is how another process gets into a lab that is up.
// settle.go and ready.go wait, gateway.go says no to what nobody answers for, sctp.go and
// userns.go are for what not every kernel allows, and stock.go and dir.go look that nothing is
// left behind.
package lab
