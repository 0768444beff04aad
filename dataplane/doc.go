// Package dataplane compares what is wanted with what is there and has the
// difference written. It knows no Services and no rules: an Object is a key and
// a body, owned by somebody, and lives in a Container.
//
//	Set(owner, objects) -> Want --diff--> Plan --Kernel.Apply--> kernel
//	                         kernel --Kernel.Observe--> diff
//
// Want remembers, for whatever changed since the last successful write, what
// the kernel is believed to hold. So the cost of a write follows the change and
// not the cluster, a failed write loses nothing, and a change that is taken
// back before it was written writes nothing.
//
// The package is pure but for Sync, which calls the Kernel. It imports the
// standard library only.
//
// Begin with object.go and kernel.go, the words, and sync.go, which others call. want.go is
// what is wanted, in the parts of parts.go, with the winner of each key by compose.go, and
// index.go where many ask for one. plan.go is the difference to what the kernel is believed to
// hold, and observe.go to what it does hold. reject.go finds who is to blame for a refusal, and
// notice.go takes up what others changed. fake.go is a Kernel for tests.
package dataplane
