package main

import (
	"fmt"
	"log/slog"

	"portolan/config"
	"portolan/healthcheck"
	"portolan/localhost"
	"portolan/metrics"
	"portolan/service"
)

// newLoopback answers NodePorts on loopback where nodePortAddresses asks for it and
// the rules of the mode cannot. It returns what takes each Snapshot.
func newLoopback(c config.Config, work *crew, health *healthcheck.Health, counts *metrics.Metrics, log *slog.Logger) func(*service.Snapshot) {
	addresses := localhost.Addresses(service.NodePortAddresses{Prefixes: c.NodePortAddresses})
	if c.Mode == config.IPTables || len(addresses) == 0 {
		return func(*service.Snapshot) {}
	}
	server := localhost.New(log)
	families := map[service.Family]bool{}
	for _, a := range addresses {
		families[service.FamilyOf(a)] = true
	}
	log.Info("NodePorts answer on loopback, in user space", "addresses", addresses)
	health.TellMore(func() (out []healthcheck.Condition) {
		for _, f := range []service.Family{service.IPv4, service.IPv6} {
			if families[f] {
				out = append(out, loopbackCondition(server, f))
			}
		}
		return out
	})
	counts.CountLoopback(func(f service.Family) (listeners, failures int) {
		s := server.State(f)
		return s.Listeners, s.Failures
	})
	work.add(server.Run)
	return server.Publish
}

// loopbackCondition is LoopbackAnswers of one family.
func loopbackCondition(server *localhost.Server, f service.Family) healthcheck.Condition {
	s := server.State(f)
	c := healthcheck.Condition{Type: healthcheck.LoopbackAnswers, Family: f.String(), Status: "True",
		Message: fmt.Sprintf("NodePorts answer on loopback at %d ports", s.Listeners)}
	if s.Refused == 0 {
		return c
	}
	c.Status, c.Since = "False", &s.Since
	c.Message = fmt.Sprintf("%d ports on loopback are somebody else's, and are tried again", s.Refused)
	c.Services = map[string]string{}
	for _, r := range server.Refused() {
		if service.FamilyOf(r.Port.Addr.Addr()) == f {
			c.Services[r.Service.String()] = r.Err.Error()
		}
	}
	return c
}
