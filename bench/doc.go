// Command bench measures Portolan beside kube-proxy: same machine, same run, a
// real API server, real kernel tables, in network namespaces. Everything that is
// missing is built first; that takes minutes the first time.
//
// Every run of a product has a node of its own, and the products take turns.
// Ratios count: absolute times depend on the machine and on what else it does.
// Runs are printed as tables and, with -o, kept as lines that bench/report makes
// docs/performance.md from.
//
// main.go has the flags and the order of runs, measure.go one run; world.go and workload.go
// are what it runs in, proxy.go what it measures. The figures are taken by change.go,
// connect.go, storm.go, writes.go and proc.go. Package figures has their names.
package main
