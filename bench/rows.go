package main

import "fmt"

// A row is one thing that is measured.
type row int

const (
	firstSync     row = iota // caches synced to last commit, by the product's word
	lastVIP                  // exec until the last of the sampled ClusterIPs answers
	spaced                   // EndpointSlice change to traffic, pause between
	backToBack               // the same, the next as soon as the one before is seen
	backToBack10             // the same with minSyncPeriod 10 ms
	changeSync               // from the change known to the last commit, by the product\'s word, mean of spaced ones
	changeCPU                // process and children, a spaced change
	memory                   // peak of the process and of its biggest child
	ownMemory                // peak of the process alone
	restart                  // exec to done, nothing changed
	restartWrites            // to the kernel meanwhile
	idleCPU                  // per second
	idleWrites
	connectFirst10 // connect through that to a pod, tenth percentile
	connectFirst   // the same, median
	connectLast10
	connectLast
	connectBig10
	connectBig
	stormCPU    // percent of a core
	stormMemory // growth
	stormFailed // calls of a Service that did not change
	stormLast   // one more change to traffic
	rows
)

// unit is what values of a row are printed in.
func (r row) unit() string {
	switch r {
	case firstSync, lastVIP, restart:
		return "s"
	case spaced, backToBack, backToBack10, changeSync, changeCPU:
		return "ms"
	case memory, ownMemory:
		return "MiB"
	case idleCPU:
		return "ms/s"
	case restartWrites, idleWrites:
		return "writes"
	case connectFirst10, connectFirst, connectLast10, connectLast, connectBig10, connectBig:
		return "times"
	case stormCPU:
		return "% of a core"
	case stormMemory:
		return "MiB"
	case stormFailed:
		return "calls"
	case stormLast:
		return "ms"
	}
	panic(fmt.Sprintf("bench: row %d", int(r)))
}

func (r row) String() string {
	return [rows]string{
		"first full sync", "exec to the last ClusterIP", "change to traffic, spaced", "change to traffic, back to back",
		"the same, minSyncPeriod 10 ms", "sync of a change alone", "CPU a change, process + children", "peak memory, process + child",
		"peak memory, process alone",
		"restart, nothing changed", "kernel writes at that restart", "idle: CPU", "idle: kernel writes",
		"connect to the first Service against to a pod, p10", "the same, median", "connect to the last Service against to a pod, p10", "the same, median",
		"connect to the Service with the most endpoints against to a pod, p10", "the same, median",
		"storm of 100 changes a second: CPU", "memory that grew meanwhile", "calls of another Service that failed meanwhile", "change to traffic at its end",
	}[r]
}
