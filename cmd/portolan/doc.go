// Command portolan is a Kubernetes Service proxy that can explain itself: see
// "portolan --help".
//
// main.go has the list of commands; each begins in the file of its name. What the other
// files are for:
//
//	proxy      run.go puts the parts together and runs them. They are made in backends.go
//	           (and nftables.go, ipvs.go for these modes), input.go, node.go and sysctl.go;
//	           auto.go chooses a mode, and takeover.go removes another proxy's rules.
//	           reports.go passes on what the agent tells: to events.go, healthports.go,
//	           flows.go, drift.go and the metrics. Warnings in the log are made by
//	           complaints.go, detector.go, problems.go, layout.go and tablefull.go.
//	           crew.go has the goroutines, loopback.go NodePorts on loopback, memory.go
//	           and garbage.go the limits of the process.
//	plan       planflags.go; against.go for --against
//	trace      traceacross.go for several nodes, naming.go for the names in its answers
//	verify     findings.go prints; compare.go and comparison.go are --compare
//	dump       hostflags.go, which trace and verify share: a host from files or alive
//	top        topview.go prints; rebalance.go acts on it
//	podnet     podnetrules.go
//	lab        lab.go is "lab run", with labpodnet.go for its pod network; labup.go keeps a
//	           lab, labcontrol.go changes it, and labuse.go and labwalk.go look at it.
//	           Package demo is what "lab run" shows.
//
// Code here wires: it reads flags, calls rooms and prints what they say. exit.go has the
// exit codes, which docs/stability.md promises.
package main
