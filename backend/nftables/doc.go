// Package nftables writes Services into the tables "ip portolan" and "ip6
// portolan", over netlink.
//
// Endpoints are elements of maps, so that a change of an endpoint is a change of
// elements, which costs the kernel microseconds however much else is there:
//
//	service-ips {address . protocol . port : number of lb-N}
//	    -> balancers {number of lb-N : goto lb-N}
//	    -> lb-N: dnat to address . protocol . port . random number below N map @eps-N
//	    -> eps-N {address . protocol . port . slot : endpoint}
//
// Everything that has N endpoints shares the chain lb-N and the map eps-N, which
// live while some Service asks for them. An endpoint of more weight has more slots.
// There is no chain, map or rule of a single Service, but where it asks for round
// robin, whose counter it cannot share.
//
// Objects are cut like this (dataplane.Key.Container, with what they hold):
//
//	sets                 keyed by name: the declaration of a set or map
//	chain/NAME           a whole chain: its rules; a base chain begins with its hook
//	frontends            keyed by frontend: all that is about one address and port, or
//	                     one NodePort, in whichever sets; see entry.go
//	set/cluster-ips      keyed: addresses of which other ports are refused
//	set/nodeport-ips     keyed: addresses on which NodePorts answer
//	set/hairpin          keyed: endpoints on this node
//	map/balancers        keyed by chain; see numbers.go
//	map/affinity-learn   keyed by chain; see affinity.go
//	set/affinity-scopes  keyed by scope
//
// Where to begin: render.go writes down what a Service asks for, with balance.go for its
// endpoints and affinity.go for its clients, and base.go what no Service asks for. The
// objects are texts: sets.go knows the sets by their names, entry.go the bodies of
// frontends. On the way to the kernel rule.go and element.go turn the texts into rules
// and elements and back. observe.go reads the table. apply.go writes a plan: stages.go
// says in which order, late.go what is removed later, clients.go which clients move on,
// and strays.go which did not when they should. ranges.go moves
// many source ranges at once. words.go has what differs between the families, and
// userdata.go what nft needs to list the table. dropped.go counts, and plantext.go prints a
// plan as nft would read it.
package nftables
