// Package judge lets the kernel judge the tracer: random Services and rules
// are loaded into a namespace, random packets are sent through it, and what
// the kernel's counters and the packets that arrive say must equal what trace
// says. It holds tests only. They need root, iptables and network namespaces,
// and skip without; -cases sets how many packets are sent (make e2e sends
// more than make test).
package judge
