// Package conntrack reads and removes the connections that the kernel tracks in
// this network namespace, over netlink. It knows flows, not Services.
//
// It reads the messages itself, since a table may hold millions of entries: a dump is
// streamed, an entry is a value of fixed size, and the kernel is asked for nothing but
// the entries that may matter. The general reader of github.com/vishvananda/netlink
// keeps all of a dump in memory; docs/performance.md has both times.
//
// Begin with table.go; flow.go is what it yields and by what it is filtered, listen.go hears of
// new ones. message.go and attr.go write and read the messages.
package conntrack
