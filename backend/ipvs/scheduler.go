package ipvs

import (
	"fmt"

	"portolan/service"
)

// inTurn is the scheduler that gives one real server after the other a connection.
const inTurn = "rr"

// weighted are what stands in for schedulers that pay no heed to weights, where a
// Service has some.
var weighted = map[string]string{inTurn: "wrr", "lc": "wlc"}

// withoutWeights says why a scheduler does not give real servers their weight's part
// of the connections (Linux 6.1).
var withoutWeights = map[string]string{
	"dh":  "pays no heed to weights",
	"fo":  "sends all to the real server with the highest weight",
	"ovf": "takes a weight for the number of connections that a real server may have",
}

// scheduler is the one for a Service: the one that it names, the one that it asks for
// by another word, or that of all.
func (b *Backend) scheduler(svc *service.Service, weights bool) string {
	name := b.options.Scheduler
	switch {
	case svc.Scheduler != "":
		name = svc.Scheduler
	case svc.Algorithm == service.RoundRobin:
		name = inTurn
	}
	if stands, ok := weighted[name]; ok && weights {
		return stands
	}
	return name
}

// Unweighted tells why the endpoints of a Service do not get the parts of its traffic
// that their weights, or a slow start, ask for; empty when they do.
func (b *Backend) Unweighted(svc *service.Service) string {
	uneven := svc.SlowStart > 0
	for _, p := range svc.Ports {
		for _, e := range p.Endpoints {
			uneven = uneven || e.Weight != 0
		}
	}
	name := b.scheduler(svc, true)
	why, without := withoutWeights[name]
	if !uneven || !without {
		return ""
	}
	return fmt.Sprintf("the scheduler %s of IPVS %s; wrr and wlc give each endpoint its part", name, why)
}
