// Package judge lets the kernel judge the tracer: random Services and rules
// are loaded into a namespace, random packets are sent through it, and what
// the kernel's counters and the packets that arrive say must equal what trace
// says. For rules of nft the kernel's trace events, those that `nft monitor
// trace` prints, say which rules applied and in which order; iptables-nft runs
// beside them in a third of the cases. It holds tests only. They need root,
// iptables, nft and network namespaces, and skip without; -cases and -nftcases
// set how many packets are sent (make e2e sends more than make test).
package judge
