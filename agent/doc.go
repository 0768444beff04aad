// Package agent is the loop of the proxy: it takes the newest Snapshot, has
// each backend render what changed, writes it at a bounded pace, looks at the
// kernel in full at start, after an error and from time to time, and tries
// again until what is wanted is there.
//
// Begin with agent.go, which has what others call. loop.go is one IP family at work;
// schedule.go decides when it writes and when it looks, repair.go is the looking. changes.go
// counts what waits, news.go finds out what is worth telling, and journal.go remembers it.
package agent
