package trace

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// nftChain is how kube-proxy calls its chains and sets in nftables: a hash of
// eight characters and the name in full, of a Service port or an endpoint of
// one, in which colons are dots.
var nftChain = regexp.MustCompile(`^(service|local|external|endpoint|firewall|affinity)-[A-Z2-7]{8}-([^/]+)/([^/]+)/(?:tcp|udp|sctp)/([^/]*?)(?:__([^/]+)/([0-9]+))?$`)

// wholeName is a comment that is a Service's name and nothing else.
var wholeName = regexp.MustCompile(`^(` + serviceName.String() + `)$`)

// nftChainName says in Service terms what a chain is, and which Service it is
// of; both are "" for other chains.
func nftChainName(chain string) (name, service string) {
	m := nftChain.FindStringSubmatch(chain)
	if m == nil {
		return "", ""
	}
	service = m[2] + "/" + m[3]
	if m[4] != "" {
		service += ":" + m[4]
	}
	switch m[1] {
	case "service":
		return service + " balancing", service
	case "local":
		return service + " balancing over local endpoints", service
	case "external":
		return service + " external traffic", service
	case "firewall":
		return service + " source ranges", service
	case "affinity":
		return service + " clients of " + nftEndpoint(m[5], m[6]), service
	}
	return service + " endpoint " + nftEndpoint(m[5], m[6]), service
}

// nftEndpoint is an endpoint as it is written elsewhere.
func nftEndpoint(ip, port string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		a, err = netip.ParseAddr(strings.ReplaceAll(ip, ".", ":"))
	}
	n, err2 := strconv.ParseUint(port, 10, 16)
	if err != nil || err2 != nil {
		return ip + ":" + port
	}
	return endpoint(a, uint16(n))
}

// nftService is the Service that a step in a native table is about, "" if it
// does not show.
func nftService(s *Step) string {
	if s.Variant != netfilter.Native {
		return ""
	}
	if s.Element && wholeName.MatchString(s.Comment) {
		return s.Comment
	}
	if s.Action == ActJump || s.Action == ActGoto {
		if _, svc := nftChainName(s.Target); svc != "" {
			return svc
		}
	}
	_, svc := nftChainName(s.Chain)
	return svc
}
