// Package agent keeps one node's part of the pod network as podnet decides: at
// start, when a Node of the cluster changes, and when somebody else changes what
// the kernel holds. What it wrote stays when it ends, so that a restart is not
// noticed by pods.
package agent
