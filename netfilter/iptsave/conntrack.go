package iptsave

import (
	"strings"

	"portolan/netfilter"
)

var stateNames = map[string]netfilter.CTState{
	"INVALID": netfilter.StateInvalid, "NEW": netfilter.StateNew, "ESTABLISHED": netfilter.StateEstablished, "RELATED": netfilter.StateRelated,
	"UNTRACKED": netfilter.StateUntracked, "SNAT": netfilter.StateSNAT, "DNAT": netfilter.StateDNAT,
}

var statusNames = map[string]netfilter.CTStatus{
	"NONE": netfilter.StatusNone, "EXPECTED": netfilter.StatusExpected, "SEEN_REPLY": netfilter.StatusSeenReply,
	"ASSURED": netfilter.StatusAssured, "CONFIRMED": netfilter.StatusConfirmed,
}

// conntrackOption serves conntrack and its older name, state.
func conntrackOption(p *ruleReader, opt string) bool {
	switch opt {
	case "--ctstate", "--state":
		w := p.value(opt)
		s, _, ok := parseBits(stateNames, w)
		if !ok {
			p.addUnknown(opt, w, "the state is not known")
			return true
		}
		p.add(netfilter.ConntrackState{States: s, Not: p.optNot})
	case "--ctstatus":
		s, name, ok := parseBits(statusNames, p.value(opt))
		if !ok {
			p.addUnknown(opt, name, "the status is not known")
			return true
		}
		p.add(netfilter.ConntrackStatus{Status: s, Not: p.optNot})
	case "--ctdir":
		w := p.value(opt)
		if w != "ORIGINAL" && w != "REPLY" {
			p.fail("--ctdir is ORIGINAL or REPLY, not %q", w)
		}
		p.add(netfilter.ConntrackDirection{Reply: w == "REPLY", Not: p.optNot})
	case "--ctproto":
		w := p.value(opt)
		n, ok := netfilter.ProtoByName(w)
		if !ok {
			n = uint8(p.number(w, 8))
		}
		p.add(netfilter.ConntrackProto{Number: n, Not: p.optNot})
	case "--ctexpire":
		p.addUnknown(opt, p.value(opt), "the age of the connection is not known")
	default:
		return conntrackTuple(p, opt)
	}
	return true
}

// conntrackTuple reads --ctorigsrc, --ctrepldst, --ctorigsrcport and so on.
func conntrackTuple(p *ruleReader, opt string) bool {
	m := netfilter.ConntrackTuple{}
	rest := opt
	switch {
	case strings.HasPrefix(opt, "--ctorig"):
		rest = opt[len("--ctorig"):]
	case strings.HasPrefix(opt, "--ctrepl"):
		rest = opt[len("--ctrepl"):]
		m.Reply = true
	default:
		return false
	}
	switch rest {
	case "src", "srcport":
	case "dst", "dstport":
		m.Side = netfilter.DestinationSide
	default:
		return false
	}
	w := p.value(opt)
	var ok bool
	if strings.HasSuffix(rest, "port") {
		m.Ports, ok = parsePorts(w, ":")
	} else {
		m.Prefix, ok = parsePrefix(w)
	}
	if !ok {
		p.addUnknown(opt, w, "neither an address nor a port")
		return true
	}
	m.Not = p.optNot
	p.add(m)
	return true
}
