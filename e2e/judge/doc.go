// Package judge holds tests in which the kernel judges the reading half and the
// writing half.
//
// Generated Services are programmed by the real binary into a node of a lab, with
// generated foreign rules around them; generated packets are sent for real from
// pods, endpoints, the node and outside. The kernel tells what it did with each: by
// the packets that arrive, by what is delivered to the node, by errors that come
// back, and by its own rule trace (nft trace events; for legacy tables the TRACE
// target by way of nfnetlink_log). What trace says must be the same rule by rule,
// with marks, addresses and interfaces; what package service decides and what plan
// prints must lead to the same end.
//
// Everything random begins at one seed, which is printed: PORTOLAN_E2E_SEED=N
// repeats a run, and a test named seed-N its round alone.
package judge
