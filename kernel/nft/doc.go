// Package nft speaks nf_tables netlink: batches of messages that the kernel
// takes as a whole or not at all, dumps that scale, and notifications.
//
//	Batch.AddSet, AddChain, AddRule, AddElement, ... -> Conn.Commit -> nil or *BatchError
//	Conn.Chains, Sets, Rules, Elements <- dumps
//	Listen <- what others change
//
// It exists because the library at hand drops what a Service proxy cannot do
// without: set userdata, the message that an error is about, torn dumps, and
// receive buffers that keep a dump of 250,000 elements from being quadratic.
// It knows tables, not Services.
//
// The protocol is that of linux/netfilter/nf_tables.h: attributes are
// length-prefixed and padded to 4 bytes, integers in them are big endian, and
// registers are numbered in units of 4 bytes from Reg (NFT_REG32_00) on.
//
// object.go and expr.go are the vocabulary. batch.go and commit.go write; dump.go,
// exprread.go, counts.go and ask.go read; listen.go hears.
package nft
