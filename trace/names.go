package trace

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"

	"portolan/netfilter"
)

// The prefixes of the chains that a Service proxy names by hashes.
var hashedPrefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-XLB-", "KUBE-SEP-"}

// choicePrefix begins the names of chains by which Portolan's compact layout chooses
// among many endpoints: 9 letters of the hash of the Service port, and which of its
// chains it is, "KUBE-PORTOLAN-5MLOE7XBM-C01".
const (
	choicePrefix = "KUBE-PORTOLAN-"
	choiceHash   = 9
)

// hashOf returns the hash in the name of a chain, or as much as there is of it.
func hashOf(chain, prefix string) string {
	if prefix == choicePrefix {
		return chain[len(prefix) : len(prefix)+choiceHash]
	}
	return chain[len(prefix):]
}

// hashedKind tells what a hashed chain is for, "" for other chains.
func hashedKind(chain string) string {
	for _, p := range hashedPrefixes {
		if strings.HasPrefix(chain, p) && len(chain) == len(p)+16 {
			return p
		}
	}
	if name, is := strings.CutPrefix(chain, choicePrefix); is && len(name) > choiceHash+2 && name[choiceHash] == '-' {
		return choicePrefix
	}
	return ""
}

// hash16 is how chain names are made: the first 16 characters of the base32
// form of a SHA-256. For a Service the text is name and protocol, for an
// endpoint also "ip:port"; the name is namespace/name or namespace/name:port.
func hash16(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// serviceName finds namespace/name[:port] in a comment.
var serviceName = regexp.MustCompile(`[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)?`)

var protocols = []string{"tcp", "udp", "sctp"}

// chainName says in Service terms what a hashed chain is: "default/web:http
// endpoint 10.244.0.4:80". hint is a Service name that the walk has met. The
// result is "" for other chains and for those that nothing explains.
func (t *Tracer) chainName(c *netfilter.Chain, hint string) (name, service string) {
	if n, ok := t.opt.Names[c.Name]; ok {
		return n, serviceName.FindString(n)
	}
	if name, service := nftChainName(c.Name); name != "" {
		return name, service
	}
	prefix := hashedKind(c.Name)
	if prefix == "" {
		return "", ""
	}
	want := hashOf(c.Name, prefix)
	endpoint := dnatTarget(c)
	for _, cand := range candidates(c, hint) {
		for _, proto := range protocols {
			if prefix != "KUBE-SEP-" && strings.HasPrefix(hash16(cand+proto), want) {
				return cand + " " + purpose(prefix), cand
			}
			if prefix == "KUBE-SEP-" && endpoint != "" && hash16(cand+proto+endpoint) == want {
				return cand + " endpoint " + endpoint, cand
			}
		}
	}
	// The hash explains nothing: another proxy, or another scheme. The
	// comment of the chain's own rules is the next best.
	named := candidates(c, "")
	switch {
	case len(named) == 0:
		return "", ""
	case prefix == "KUBE-SEP-" && endpoint != "":
		return named[0] + " endpoint " + endpoint, named[0]
	}
	return named[0] + " " + purpose(prefix), named[0]
}

// purpose says what chains of kube-proxy with a prefix are for.
func purpose(prefix string) string {
	switch prefix {
	case "KUBE-SVC-", choicePrefix:
		return "balancing"
	case "KUBE-SVL-":
		return "balancing over local endpoints"
	case "KUBE-EXT-", "KUBE-XLB-":
		return "external traffic"
	case "KUBE-FW-":
		return "source ranges"
	}
	return "endpoint"
}

// candidates are the Service names in a chain's comments, then the hint.
func candidates(c *netfilter.Chain, hint string) []string {
	var out []string
	for i := range c.Rules {
		if i == 4 {
			break
		}
		if s := serviceName.FindString(c.Rules[i].Comment()); s != "" {
			out = append(out, s)
		}
	}
	if hint != "" {
		out = append(out, hint)
	}
	return out
}

// dnatTarget is the "ip:port" an endpoint's chain rewrites to.
func dnatTarget(c *netfilter.Chain) string {
	for i := range c.Rules {
		if d, ok := c.Rules[i].Target.(netfilter.Translate); ok && d.Kind == netfilter.DNAT && d.Addrs.First.IsValid() {
			return endpoint(d.Addrs.First, d.Ports.First)
		}
	}
	return ""
}

// ChainName says in Service terms what a chain of the host is, "" if it
// cannot be told.
func (t *Tracer) ChainName(family netfilter.Family, v netfilter.Variant, table, chain string) string {
	tab := t.host.Table(family, v, table)
	if tab == nil || tab.Chain(chain) == nil {
		return t.opt.Names[chain]
	}
	name, _ := t.chainName(tab.Chain(chain), "")
	return name
}

// describe finds the Service that an outcome is about and words the reason.
func (t *Tracer) describe(o *Outcome) {
	family := netfilter.FamilyOf(o.Dst)
	for i := range o.Steps {
		s := &o.Steps[i]
		if svc := nftService(s); svc != "" {
			o.Service = svc
			continue
		}
		found := serviceName.FindString(s.Comment)
		if tab := t.host.Table(family, s.Variant, s.Table); tab != nil && hashedKind(s.Chain) != "" {
			if c := tab.Chain(s.Chain); c != nil {
				if _, svc := t.chainName(c, o.Service); svc != "" {
					found = svc
				}
			}
		}
		hashed := hashedKind(s.Chain) != "" || hashedKind(s.Target) != ""
		refused := (s.Action == ActReject || s.Action == ActDrop) && strings.HasPrefix(s.Chain, "KUBE-")
		if found != "" && (hashed || refused) {
			o.Service = found
		}
	}
	if o.Service == "" {
		o.Service = t.frontendOf(o)
	}
	o.Reason = t.reason(o)
}

// reason puts the outcome into a sentence.
func (t *Tracer) reason(o *Outcome) string {
	var parts []string
	if o.DNAT {
		what := "destination rewritten to " + endpoint(o.Dst, o.DstPort)
		if o.Service != "" {
			what += ", an endpoint of " + o.Service
		}
		parts = append(parts, what)
	}
	if o.Masquerade {
		parts = append(parts, "source rewritten to "+endpoint(o.Src, 0))
	}
	parts = append(parts, o.Reason)
	if len(o.Conditions) > 0 {
		parts = append(parts, "only if "+strings.Join(o.Conditions, " and "))
	}
	return strings.Join(parts, "; ")
}
