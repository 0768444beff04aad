package verify

import (
	"slices"

	"portolan/service"
)

// asIPVS changes what is expected to what kube-proxy's ipvs mode does where it
// cannot do what the other modes do: without an endpoint on the node policy Local
// falls back to all endpoints, with one it holds for clients on the node too, and
// source ranges do not bind the node itself. It is for a call that is not as the
// Service asks.
func (w *world) asIPVS(pf service.PortFrontends, c call) call {
	fe := &c.target.fe
	if c.want.closed && c.client.class == service.FromHost {
		c.want = expectation{Route: fe.Route(service.FromHost)}
	}
	if fe.Kind == service.ClusterIP && c.client.class == service.FromHost {
		c.want.Masquerade = true // the address is the node's own, and its source with it
	}
	outside := fe.Route(service.FromOutside)
	held := outside.Policy == service.Local
	if c.want.closed || !held || c.want.Verdict == service.Reject {
		return c
	}
	c.want.Verdict = service.Forward
	if c.want.Endpoints = outside.Endpoints; len(c.want.Endpoints) == 0 {
		c.want.Endpoints = slices.DeleteFunc(slices.Clone(pf.Port.Endpoints), func(e service.Endpoint) bool {
			return !e.Ready || service.FamilyOf(e.Addr.Addr()) != service.FamilyOf(c.target.to.Addr())
		})
	}
	if fe.Kind != service.ClusterIP {
		c.want.Masquerade = false
		return c
	}
	node := w.in.Services.Node
	c.want.Masquerade = node.MasqueradeAll || c.client.class == service.FromHost || c.client.class != service.FromPod && node.Detector.Detects(service.FamilyOf(c.target.to.Addr()))
	return c
}
