package trace

import (
	"math/big"

	"portolan/netfilter"
)

// prepared is what every walk would work out again.
type prepared struct {
	shares map[netfilter.StatisticRandom]*big.Rat
	conf   map[confKey]confValue
}

// confKey is a sysctl of an interface, and confValue what Host.ConfSysctl says of it.
type confKey struct{ iface, leaf string }

type confValue struct {
	value string
	given bool
}

// confLeaves are the sysctls of an interface that walks ask for, of IPv4.
var confLeaves = []string{"route_localnet", "accept_local", "rp_filter"}

// prepare works it out, once for a Tracer.
func prepare(h *netfilter.Host) prepared {
	p := prepared{shares: map[netfilter.StatisticRandom]*big.Rat{}, conf: map[confKey]confValue{}}
	for _, in := range h.Interfaces {
		for _, leaf := range confLeaves {
			v, given := h.ConfSysctl(netfilter.IPv4, in.Name, leaf)
			p.conf[confKey{in.Name, leaf}] = confValue{v, given}
		}
	}
	for _, rule := range h.Rules() {
		for _, m := range rule.Matches {
			if m, is := m.(netfilter.StatisticRandom); is && p.shares[m] == nil {
				p.shares[m] = m.Share()
			}
		}
	}
	return p
}

// share is how often a random match holds. It must not be written to.
func (p prepared) share(m netfilter.StatisticRandom) *big.Rat {
	if s := p.shares[m]; s != nil {
		return s
	}
	return m.Share()
}

// confSysctl is Host.ConfSysctl for IPv4.
func (t *Tracer) confSysctl(iface, leaf string) (value string, given bool) {
	if v, ok := t.conf[confKey{iface, leaf}]; ok {
		return v.value, v.given
	}
	return t.host.ConfSysctl(netfilter.IPv4, iface, leaf)
}
