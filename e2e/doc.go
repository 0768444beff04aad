// Package e2e holds tests that send real packets: Services and EndpointSlices as
// files go to `portolan proxy` in every node of a lab, and what callers see is
// compared with tables written by hand from the semantics of Services. Scenarios
// are the txtar files of testdata; testdata/README.md describes them. The tests
// need root and skip without.
package e2e
