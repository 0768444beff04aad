// Package figures is what the bench measures, by name: rows, the runs that gave
// their values, the lines that runs are kept in, and what is made of many values.
package figures

import (
	"fmt"
	"slices"
)

// A Row is one thing that is measured, by its name in the data.
type Row string

const (
	FirstSync     Row = "first-sync"      // caches filled to last commit, by the product's word
	LastVIP       Row = "last-vip"        // exec until the last of the sampled ClusterIPs answers
	Spaced        Row = "spaced"          // EndpointSlice change to traffic, pause between
	SpacedAnswer  Row = "spaced-answer"   // EndpointSlice change to the API server's answer: what any product waits for
	BackToBack    Row = "back-to-back"    // the same, the next as soon as the one before is seen
	BackToBack10  Row = "back-to-back-10" // the same with minSyncPeriod 10 ms
	Busy          Row = "busy"            // the same while 20 other changes a second arrive
	Busy10        Row = "busy-10"         // the same with minSyncPeriod 10 ms
	ChangeSync    Row = "change-sync"     // a change known to last commit, by the product's word, mean of spaced ones
	ChangeCPU     Row = "change-cpu"      // process and children, mean of spaced ones
	PeakMemory    Row = "peak-memory"     // VmHWM of the process and of its biggest child
	OwnMemory     Row = "own-memory"      // VmHWM of the process alone
	SettledMemory Row = "settled-memory"  // VmRSS of the process once it is calm
	KernelMemory  Row = "kernel-memory"   // of the tables, the product having ended
	Restart       Row = "restart"         // exec to done, nothing changed
	RestartWrites Row = "restart-writes"  // to the kernel meanwhile
	IdleCPU       Row = "idle-cpu"        // of each second
	IdleWrites    Row = "idle-writes"     // to the kernel
	Emptied       Row = "emptied"         // exec, every Service being gone, until no ClusterIP answers
	EmptiedCPU    Row = "emptied-cpu"     // process and children for it
	StormCPU      Row = "storm-cpu"       // of a core, at 100 changes a second
	StormMemory   Row = "storm-memory"    // growth of VmRSS
	StormFailed   Row = "storm-failed"    // calls of a Service that did not change
	StormLast     Row = "storm-last"      // one more change to traffic
)

// A Target is what the client connects to.
type Target string

const (
	Bare    Target = "bare"    // a pod behind a node without rules: what the others are held against
	Tracked Target = "tracked" // a pod behind a node with one rule that translates, and not this
	Pod     Target = "pod"     // a pod behind the node that is measured
	First   Target = "first"   // the first Service
	Last    Target = "last"    // the last Service
	Biggest Target = "biggest" // the Service with the most endpoints
)

// Targets are all of them, Bare first.
var Targets = []Target{Bare, Tracked, Pod, First, Last, Biggest}

func (t Target) title() string {
	return map[Target]string{
		Bare: "a pod behind a bare node", Tracked: "a pod behind a node with one rule", Pod: "a pod", First: "the first Service",
		Last: "the last Service", Biggest: "the Service with most endpoints",
	}[t]
}

// What is measured of connections to a target. Of Bare they are absolute; of the
// others too, and shown as multiples of Bare's.
const (
	ConnectP10    = "connect-p10"    // microseconds
	ConnectMedian = "connect-median" // microseconds
	ConnectRate   = "connect-rate"   // a second, one after the other
	ConnectCPU    = "connect-cpu"    // microseconds of the whole machine
)

// Connect is the row of a figure of connections to a target.
func Connect(figure string, to Target) Row { return Row(figure + "-" + string(to)) }

// A Heading says what a row is about.
type Heading struct {
	Row   Row
	Title string
	Unit  string
	More  bool // more is better
}

// Headings are those of all rows, in the order of the tables.
var Headings = append([]Heading{
	{FirstSync, "first full sync", "s", false},
	{LastVIP, "exec to the last ClusterIP", "s", false},
	{Spaced, "change to traffic, spaced", "ms", false},
	{SpacedAnswer, "the API server's part of it", "ms", false},
	{BackToBack, "change to traffic, back to back", "ms", false},
	{BackToBack10, "the same, minSyncPeriod 10 ms", "ms", false},
	{Busy, "change to traffic beside 20 changes a second", "ms", false},
	{Busy10, "the same, minSyncPeriod 10 ms", "ms", false},
	{ChangeSync, "sync of a change alone", "ms", false},
	{ChangeCPU, "CPU of a change, process + children", "ms", false},
	{PeakMemory, "peak memory, process + child", "MiB", false},
	{OwnMemory, "peak memory, process alone", "MiB", false},
	{SettledMemory, "settled memory, process", "MiB", false},
	{KernelMemory, "kernel memory of the tables", "MiB", false},
	{Restart, "restart, nothing changed", "s", false},
	{RestartWrites, "kernel writes at that restart", "writes", false},
	{IdleCPU, "idle: CPU", "ms/s", false},
	{IdleWrites, "idle: kernel writes", "writes", false},
	{Emptied, "everything deleted: exec until no ClusterIP answers", "s", false},
	{EmptiedCPU, "everything deleted: CPU", "s", false},
	{StormCPU, "100 changes a second: CPU", "% of a core", false},
	{StormMemory, "100 changes a second: memory that grew", "MiB", false},
	{StormFailed, "100 changes a second: failed calls of another Service", "calls", false},
	{StormLast, "100 changes a second: change to traffic at their end", "ms", false},
}, connects()...)

func connects() (out []Heading) {
	for _, t := range Targets {
		out = append(out,
			Heading{Connect(ConnectP10, t), "connect to " + t.title() + ", p10", "us", false},
			Heading{Connect(ConnectMedian, t), "connect to " + t.title() + ", median", "us", false},
			Heading{Connect(ConnectRate, t), "new connections to " + t.title(), "a second", true},
			Heading{Connect(ConnectCPU, t), "CPU of a connection to " + t.title(), "us", false})
	}
	return out
}

// HeadingOf finds a row's heading.
func HeadingOf(r Row) (Heading, error) {
	i := slices.IndexFunc(Headings, func(h Heading) bool { return h.Row == r })
	if i < 0 {
		return Heading{}, fmt.Errorf("figures: no row %q", r)
	}
	return Headings[i], nil
}
