package iptsave

import (
	"strconv"
	"strings"

	"portolan/netfilter"
)

// direct holds the modules whose options each stand for a match of its own.
// A function reports whether it knew the option.
var direct map[string]func(p *ruleReader, opt string) bool

func init() {
	direct = map[string]func(*ruleReader, string) bool{
		"comment": commentOption, "tcp": tcpOption, "udp": portOption, "udplite": portOption, "dccp": portOption, "sctp": portOption,
		"icmp": icmpOption, "icmp6": icmpOption, "icmpv6": icmpOption, "ipv6-icmp": icmpOption,
		"mark": markOption, "connmark": connmarkOption, "conntrack": conntrackOption, "state": conntrackOption,
		"multiport": multiportOption, "nfacct": nfacctOption, "iprange": iprangeOption, "mac": macOption,
		"length": headerOption, "ttl": headerOption, "hl": headerOption, "dscp": headerOption, "tos": headerOption, "tcpmss": headerOption,
		"bpf": bpfOption, "cgroup": cgroupOption, "u32": u32Option,
	}
}

// protocolModule is the module that -p loads by itself.
func protocolModule(proto uint8) func(*ruleReader, string) bool {
	switch proto {
	case netfilter.TCP:
		return tcpOption
	case netfilter.UDP, netfilter.SCTP, 33, 136:
		return portOption
	case netfilter.ICMP, netfilter.ICMPv6:
		return icmpOption
	}
	return nil
}

func commentOption(p *ruleReader, opt string) bool {
	if opt != "--comment" {
		return false
	}
	p.add(netfilter.Comment{Text: p.value(opt)})
	return true
}

// portOption reads --sport and --dport, which several protocols share.
func portOption(p *ruleReader, opt string) bool {
	side := netfilter.SourceSide
	switch opt {
	case "--sport", "--source-port":
	case "--dport", "--destination-port":
		side = netfilter.DestinationSide
	default:
		return false
	}
	w := p.value(opt)
	r, ok := parsePorts(w, ":")
	if !ok {
		p.addUnknown(opt, w, "the port is not known by name")
		return true
	}
	p.add(netfilter.Port{Side: side, Range: r, Not: p.optNot})
	return true
}

// addUnknown keeps an option that has no meaning here, with the reason.
func (p *ruleReader) addUnknown(opt, value, why string) {
	if p.err != nil {
		return
	}
	text := opt + " " + value
	if p.optNot {
		text = "! " + text
	}
	mod := ""
	if len(p.mods) > 0 {
		mod = p.mods[len(p.mods)-1]
	}
	p.add(netfilter.Unknown{Module: mod, Text: text, Why: why})
}

var tcpFlagNames = map[string]uint8{
	"FIN": netfilter.FIN, "SYN": netfilter.SYN, "RST": netfilter.RST, "PSH": netfilter.PSH, "ACK": netfilter.ACK, "URG": netfilter.URG,
	"ALL": 0x3f, "NONE": 0,
}

func (p *ruleReader) tcpFlags(w string) uint8 {
	flags, f, ok := parseBits(tcpFlagNames, w)
	if !ok {
		p.fail("%q is no TCP flag", f)
	}
	return flags
}

func tcpOption(p *ruleReader, opt string) bool {
	switch opt {
	case "--tcp-flags":
		mask, comp := p.value(opt), p.value(opt)
		if p.err == nil {
			p.add(netfilter.TCPFlags{Mask: p.tcpFlags(mask), Comp: p.tcpFlags(comp), Not: p.optNot})
		}
	case "--syn":
		p.add(netfilter.TCPFlags{Mask: netfilter.FIN | netfilter.SYN | netfilter.RST | netfilter.ACK, Comp: netfilter.SYN, Not: p.optNot})
	case "--tcp-option":
		p.addUnknown(opt, p.value(opt), "TCP options of the packet are not known")
	default:
		return portOption(p, opt)
	}
	return true
}

var icmpNames = map[string][3]uint8{ // type, first code, last code
	"echo-reply": {0, 0, 255}, "pong": {0, 0, 255}, "destination-unreachable": {3, 0, 255}, "network-unreachable": {3, 0, 0},
	"host-unreachable": {3, 1, 1}, "protocol-unreachable": {3, 2, 2}, "port-unreachable": {3, 3, 3}, "fragmentation-needed": {3, 4, 4},
	"source-quench": {4, 0, 255}, "redirect": {5, 0, 255}, "echo-request": {8, 0, 255}, "ping": {8, 0, 255},
	"router-advertisement": {9, 0, 255}, "router-solicitation": {10, 0, 255}, "time-exceeded": {11, 0, 255}, "ttl-exceeded": {11, 0, 255},
	"ttl-zero-during-transit": {11, 0, 0}, "parameter-problem": {12, 0, 255}, "timestamp-request": {13, 0, 255}, "timestamp-reply": {14, 0, 255},
}

var icmp6Names = map[string][3]uint8{
	"destination-unreachable": {1, 0, 255}, "no-route": {1, 0, 0}, "communication-prohibited": {1, 1, 1}, "address-unreachable": {1, 3, 3},
	"port-unreachable": {1, 4, 4}, "packet-too-big": {2, 0, 255}, "time-exceeded": {3, 0, 255}, "ttl-exceeded": {3, 0, 255},
	"parameter-problem": {4, 0, 255}, "echo-request": {128, 0, 255}, "ping": {128, 0, 255}, "echo-reply": {129, 0, 255}, "pong": {129, 0, 255},
	"router-solicitation": {133, 0, 255}, "router-advertisement": {134, 0, 255}, "neighbour-solicitation": {135, 0, 255},
	"neighbor-solicitation": {135, 0, 255}, "neighbour-advertisement": {136, 0, 255}, "neighbor-advertisement": {136, 0, 255}, "redirect": {137, 0, 255},
}

func icmpOption(p *ruleReader, opt string) bool {
	if opt != "--icmp-type" && opt != "--icmpv6-type" {
		return false
	}
	w := p.value(opt)
	m, ok := parseICMP(w, opt == "--icmpv6-type")
	if !ok {
		p.addUnknown(opt, w, "the ICMP type is not known by name")
		return true
	}
	m.Not = p.optNot
	p.add(m)
	return true
}

// parseICMP reads "TYPE", "TYPE/CODE" or a name. 255 is any, of ICMP only.
func parseICMP(w string, v6 bool) (netfilter.ICMPType, bool) {
	m := netfilter.ICMPType{V6: v6, CodeLast: 255}
	names := icmpNames
	if v6 {
		names = icmp6Names
	}
	if w == "any" || (w == "255" && !v6) {
		m.Any = true
		return m, true
	}
	if t, ok := names[w]; ok {
		m.Type, m.CodeFirst, m.CodeLast = t[0], t[1], t[2]
		return m, true
	}
	t, c, hasCode := strings.Cut(w, "/")
	n, err := strconv.ParseUint(t, 10, 8)
	if err != nil {
		return m, false
	}
	m.Type = uint8(n)
	if hasCode {
		n, err = strconv.ParseUint(c, 10, 8)
		m.CodeFirst, m.CodeLast = uint8(n), uint8(n)
	}
	return m, err == nil
}

func markOption(p *ruleReader, opt string) bool {
	if opt != "--mark" {
		return false
	}
	v, m := p.masked(p.value(opt), 0xffffffff)
	p.add(netfilter.Mark{Value: uint32(v), Mask: uint32(m), Not: p.optNot})
	return true
}

func connmarkOption(p *ruleReader, opt string) bool {
	if opt != "--mark" {
		return false
	}
	v, m := p.masked(p.value(opt), 0xffffffff)
	p.add(netfilter.ConnMark{Value: uint32(v), Mask: uint32(m), Not: p.optNot})
	return true
}

func multiportOption(p *ruleReader, opt string) bool {
	m := netfilter.MultiPort{}
	switch opt {
	case "--sports", "--source-ports":
		m.Side = netfilter.SourceSide
	case "--dports", "--destination-ports":
		m.Side = netfilter.DestinationSide
	case "--ports":
		m.Side = netfilter.EitherSide
	default:
		return false
	}
	w := p.value(opt)
	for _, part := range strings.Split(w, ",") {
		r, ok := parsePorts(part, ":")
		if !ok {
			p.addUnknown(opt, w, "a port is not known by name")
			return true
		}
		m.Ranges = append(m.Ranges, r)
	}
	m.Not = p.optNot
	p.add(m)
	return true
}

func nfacctOption(p *ruleReader, opt string) bool {
	if opt != "--nfacct-name" {
		return false
	}
	p.add(netfilter.NFAcct{Name: p.value(opt)})
	return true
}

func iprangeOption(p *ruleReader, opt string) bool {
	side := netfilter.SourceSide
	switch opt {
	case "--src-range":
	case "--dst-range":
		side = netfilter.DestinationSide
	default:
		return false
	}
	w := p.value(opt)
	r, ok := parseAddrRange(w)
	if !ok {
		p.fail("%s: %q is no address range", opt, w)
		return true
	}
	p.sawAddress(r.First)
	p.add(netfilter.IPRange{Side: side, Range: r, Not: p.optNot})
	return true
}

func macOption(p *ruleReader, opt string) bool {
	if opt != "--mac-source" {
		return false
	}
	p.add(netfilter.MACSource{Address: strings.ToLower(p.value(opt)), Not: p.optNot})
	return true
}

func cgroupOption(p *ruleReader, opt string) bool {
	if opt != "--path" && opt != "--cgroup" {
		return false
	}
	p.add(netfilter.CGroup{Text: opt + " " + p.value(opt), Not: p.optNot})
	return true
}
