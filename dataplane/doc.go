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
package dataplane
