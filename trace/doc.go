// Package trace follows a packet through the rules of a netfilter.Host, hook
// by hook, and explains every step: which rules matched, what they changed,
// how the packet was routed, and what becomes of it. Random choices branch and
// carry exact shares; what cannot be known makes an outcome uncertain and says
// why. The package is pure: it reads no kernel, file or clock.
//
// Begin with flow.go, tracer.go and outcome.go: what is asked, who answers, and the answer.
// A run (run.go) takes one packet from hook to hook: chain.go walks chains, route.go routes,
// nat.go and ipvs.go translate, and reply.go follows the answer. What a rule of iptables
// means is in eval.go, evalhost.go and evalstate.go for its matches, and target.go for its
// target; what looks at bytes is in bytes.go and the room rawbytes. The files named nft*.go
// do the same for rules of nft. oracle.go picks the branch
// of everything that is random or not known, and a Tracer runs until every branch was taken.
package trace
