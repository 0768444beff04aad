// Package verify compares what a host does with what Services ask of it. For
// every frontend and every kind of client it follows a packet through the rules
// that are there (package trace), whoever wrote them, and holds the outcome
// against the Route that package service decided. Beside that it looks at the
// set-up of the host that Services depend on. What is wrong comes as Findings,
// each with its cause, the owner of what decides, and a fix.
//
// A check is a function in a file of its own. The package is pure: it reads no
// kernel, file or clock.
//
// Begin with input.go, where Verify runs all checks. The check of what becomes of packets
// is traffic.go: expect.go says what should be, client.go who asks, fate.go what became of
// it, judge.go what is wrong, and trouble.go puts what has one cause into one Finding. Every
// other check* function looks at one thing of the host. compare.go holds two hosts against
// each other, and drift.go the rules of this program against what it would write.
package verify
