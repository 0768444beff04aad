// Package e2e holds tests that send real packets: Services and EndpointSlices as
// files go to `portolan proxy` in every node of a lab, and what callers see is
// compared with tables written by hand from the semantics of Services. The tests
// need root and skip without.
//
//   - Scenarios are the txtar files of testdata; testdata/README.md describes them.
//   - Cells are every combination of address, client, endpoints and policy;
//     cells/README.md describes them. Mutations make rules wrong to see that the
//     cells notice.
//   - Stories are changes while callers call all the time: a caller meets what was or
//     what will be, and in iptables mode exactly the chains are written that change.
package e2e
