package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan/dataplane"
)

// Verdict is what a Rule does with a packet that it matches.
type Verdict uint8

// The verdicts of masquerade and forward rules.
const (
	Return     Verdict = iota // nothing more is done here
	Accept                    // it may be forwarded
	Masquerade                // its source becomes an address of this node
)

// Rule is one rule, which iptables and nftables write each in their way. What
// is zero is not matched.
type Rule struct {
	Mark           uint32 // the bits that are set
	Src, Dst       netip.Prefix
	NotSrc, NotDst bool
	Verdict        Verdict
}

// serviceMark is the bit by which kube-proxy asks for masquerade: who masquerades
// such packets has done so already, or will.
const serviceMark = 0x4000

// MasqueradeRules are those of flannel's chain FLANNEL-POSTRTG, in order: the
// address of a pod stays within the pod network and towards pods of this node;
// what pods send out of it, and what comes into it from outside to pods of
// other nodes, takes an address of this node, so that answers come back here.
func MasqueradeRules(t Topology) []Rule {
	network := t.Config.NetworkOf(t.Family)
	multicast := netip.MustParsePrefix("224.0.0.0/4")
	if t.Family == IPv6 {
		multicast = netip.MustParsePrefix("ff00::/8")
	}
	return []Rule{
		{Mark: serviceMark},
		{Src: t.PodCIDR, Dst: network},
		{Src: network, Dst: t.PodCIDR},
		{Src: network, NotSrc: true, Dst: t.PodCIDR},
		{Src: network, Dst: multicast, NotDst: true, Verdict: Masquerade},
		{Src: network, NotSrc: true, Dst: network, Verdict: Masquerade},
	}
}

// ForwardRules let the packets of pods through a FORWARD chain whose policy is
// to drop.
func ForwardRules(t Topology) []Rule {
	network := t.Config.NetworkOf(t.Family)
	return []Rule{{Src: network, Verdict: Accept}, {Dst: network, Verdict: Accept}}
}

// The chains of the rules in iptables, as flannel calls them.
const (
	MasqueradeChain = "FLANNEL-POSTRTG"
	ForwardChain    = "FLANNEL-FWD"
)

// IPTables writes rules as iptables-save prints them, the form in which
// iptables takes them too. fullyRandom adds --random-fully.
func IPTables(masquerade, forward []Rule, fullyRandom bool) []dataplane.Object {
	var out []dataplane.Object
	add := func(table, builtin, chain, comment string, rules []Rule) {
		if len(rules) == 0 {
			return
		}
		jump := fmt.Sprintf("-m comment --comment %q -j %s", comment, chain)
		out = append(out, keyed(table+"/"+builtin, chain, jump))
		for i, r := range rules {
			out = append(out, dataplane.Object{Key: dataplane.Key{Container: table + "/" + chain, Rank: i}, Body: r.iptables(comment, fullyRandom)})
		}
	}
	add("nat", "POSTROUTING", MasqueradeChain, "flanneld masq", masquerade)
	add("filter", "FORWARD", ForwardChain, "flanneld forward", forward)
	return out
}

// iptables is the rule in the words and the order in which flannel writes it.
func (r Rule) iptables(comment string, fullyRandom bool) string {
	var w []string
	w = appendPrefix(w, "-s", r.Src, r.NotSrc)
	w = appendPrefix(w, "-d", r.Dst, r.NotDst)
	if r.Mark != 0 {
		w = append(w, fmt.Sprintf("-m mark --mark 0x%x/0x%x", r.Mark, r.Mark))
	}
	w = append(w, fmt.Sprintf("-m comment --comment %q -j", comment))
	switch r.Verdict {
	case Return:
		w = append(w, "RETURN")
	case Accept:
		w = append(w, "ACCEPT")
	case Masquerade:
		w = append(w, "MASQUERADE")
		if fullyRandom {
			w = append(w, "--random-fully")
		}
	default:
		panic(fmt.Sprintf("podnet: unknown verdict %d", r.Verdict))
	}
	return strings.Join(w, " ")
}

func appendPrefix(w []string, option string, p netip.Prefix, not bool) []string {
	if !p.IsValid() {
		return w
	}
	if not {
		w = append(w, "!")
	}
	return append(w, option, p.String())
}

// String writes the rule as nft does, without the family of the addresses'
// header.
func (r Rule) String() string {
	var w []string
	if r.Mark != 0 {
		w = append(w, fmt.Sprintf("meta mark & 0x%x == 0x%x", r.Mark, r.Mark))
	}
	for _, m := range []struct {
		name string
		p    netip.Prefix
		not  bool
	}{{"saddr", r.Src, r.NotSrc}, {"daddr", r.Dst, r.NotDst}} {
		if !m.p.IsValid() {
			continue
		}
		header := "ip6"
		if m.p.Addr().Is4() {
			header = "ip"
		}
		w = append(w, header, m.name)
		if m.not {
			w = append(w, "!=")
		}
		w = append(w, m.p.String())
	}
	return strings.Join(append(w, verdicts[r.Verdict]), " ")
}

// ParseRule reads what String writes.
func ParseRule(text string) (Rule, error) {
	var r Rule
	w := words{rest: strings.Fields(text)}
	if w.flag("meta") {
		mark := w.after("mark")
		if mark != "&" {
			w.fail(fmt.Errorf("%q where %q was due", mark, "&"))
		}
		bits, err := strconv.ParseUint(w.next(), 0, 32)
		w.fail(err)
		if again := w.after("=="); again != fmt.Sprintf("0x%x", bits) {
			w.fail(fmt.Errorf("other bits than 0x%x are compared", bits))
		}
		r.Mark = uint32(bits)
	}
	for w.flag("ip") || w.flag("ip6") {
		switch field := w.next(); field {
		case "saddr":
			r.NotSrc = w.flag("!=")
			r.Src = w.prefix()
		case "daddr":
			r.NotDst = w.flag("!=")
			r.Dst = w.prefix()
		default:
			w.fail(fmt.Errorf("%q is neither saddr nor daddr", field))
		}
	}
	verdict := slices.Index(verdicts[:], w.next())
	if verdict < 0 || len(w.rest) > 0 {
		w.fail(errors.New("no verdict stands at the end"))
	}
	if w.err != nil {
		return Rule{}, fmt.Errorf("podnet: rule %q: %w", text, w.err)
	}
	r.Verdict = Verdict(verdict)
	return r, nil
}

var verdicts = [...]string{Return: "return", Accept: "accept", Masquerade: "masquerade"}
