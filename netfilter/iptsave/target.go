package iptsave

import (
	"net/netip"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// targetOptions knows the options of the targets that have any. The target
// being built is p.target.
var targetOptions map[string]func(p *ruleReader, opt string) bool

func init() {
	targetOptions = map[string]func(*ruleReader, string) bool{
		"DNAT": natOption, "SNAT": natOption, "MASQUERADE": natOption, "REDIRECT": natOption, "NETMAP": natOption,
		"MARK": setMarkOption, "CONNMARK": setConnMarkOption, "REJECT": rejectOption, "TPROXY": tproxyOption,
	}
}

// notes are the targets that change nothing a walk depends on.
var notes = map[string]bool{
	"TCPMSS": true, "CHECKSUM": true, "CLASSIFY": true, "DSCP": true, "TOS": true, "TTL": true, "HL": true, "TEE": true, "AUDIT": true,
	"SECMARK": true, "CONNSECMARK": true, "IDLETIMER": true, "LED": true, "ECN": true, "TCPOPTSTRIP": true, "RATEEST": true,
}

// jump begins a target. A name that is no known target is taken for a chain;
// the end of the table shows whether it is one.
func (p *ruleReader) jump(name string, goTo bool) {
	if p.err != nil {
		return
	}
	if p.name != "" {
		p.fail("two targets, %s and %s", p.name, name)
		return
	}
	p.name, p.goTo = name, goTo
	if goTo {
		p.target = netfilter.Jump{Chain: name, Goto: true}
		return
	}
	switch name {
	case "ACCEPT":
		p.target = netfilter.Accept{}
	case "DROP":
		p.target = netfilter.Drop{}
	case "RETURN":
		p.target = netfilter.Return{}
	case "DNAT":
		p.target = netfilter.Translate{Kind: netfilter.DNAT}
	case "SNAT":
		p.target = netfilter.Translate{Kind: netfilter.SNAT}
	case "MASQUERADE":
		p.target = netfilter.Translate{Kind: netfilter.Masquerade}
	case "REDIRECT":
		p.target = netfilter.Translate{Kind: netfilter.Redirect}
	case "NETMAP":
		p.target = netfilter.Translate{Kind: netfilter.NetMap}
	case "MARK":
		p.target = netfilter.SetMark{}
	case "CONNMARK":
		p.target = netfilter.SetConnMark{CTMask: 0xffffffff, NFMask: 0xffffffff}
	case "REJECT":
		p.target = netfilter.Reject{}
	case "TPROXY":
		p.target = netfilter.TProxy{}
	default:
		p.textTarget(name)
	}
}

// textTarget begins a target whose options are only kept as text.
func (p *ruleReader) textTarget(name string) {
	switch {
	case name == "LOG" || name == "NFLOG" || name == "ULOG" || name == "TRACE":
		p.target = netfilter.Log{Kind: name, Text: p.takeOptions()}
	case name == "NOTRACK":
		p.target = netfilter.CT{NoTrack: true}
	case name == "CT":
		text := p.takeOptions()
		p.target = netfilter.CT{NoTrack: strings.Contains(text, "--notrack"), Text: text}
	case name == "QUEUE" || name == "NFQUEUE":
		text := p.takeOptions()
		p.target = netfilter.NFQueue{Text: text, Bypass: strings.Contains(text, "--queue-bypass")}
	case name == "SET":
		text := p.takeOptions()
		m := netfilter.SetChange{Text: text}
		if f := strings.Fields(text); len(f) > 1 {
			m.Name = f[1]
		}
		p.target = m
	case notes[name]:
		p.target = netfilter.Note{Name: name, Text: p.takeOptions()}
	case name == "SYNPROXY" || name == "CLUSTERIP" || name == "HMARK" || name == "DNPT" || name == "SNPT":
		p.target = netfilter.Unknown{Module: name, Text: p.takeOptions(), Why: "the target is not modelled"}
	default:
		p.target = netfilter.Jump{Chain: name}
	}
}

// finishTarget checks what only the whole target shows.
func (p *ruleReader) finishTarget() {
	if t, ok := p.target.(netfilter.Reject); ok && t.With == "" {
		t.With = "icmp-port-unreachable"
		if p.family == netfilter.IPv6 {
			t.With = "icmp6-port-unreachable"
		}
		p.target = t
	}
}

func natOption(p *ruleReader, opt string) bool {
	t, ok := p.target.(netfilter.Translate)
	if !ok {
		return false
	}
	switch opt {
	case "--to-destination", "--to-source":
		w := p.value(opt)
		if !parseNATRange(w, &t) && p.err == nil {
			p.fail("%s: %q is no address and port", opt, w)
		}
		if t.Addrs.First.IsValid() {
			p.sawAddress(t.Addrs.First)
		}
	case "--to-ports":
		w := p.value(opt)
		if t.Ports, ok = parsePorts(w, "-"); !ok && p.err == nil {
			p.fail("%s: %q is no port range", opt, w)
		}
	case "--to":
		w := p.value(opt)
		if t.Prefix, ok = parsePrefix(w); !ok && p.err == nil {
			p.fail("NETMAP: %q is no prefix", w)
		}
	case "--random":
		t.Random = true
	case "--random-fully":
		t.RandomFully = true
	case "--persistent":
		t.Persistent = true
	default:
		return false
	}
	p.target = t
	return true
}

// parseNATRange reads [ADDR[-ADDR]][:PORT[-PORT[/BASE]]]; IPv6 addresses with
// ports stand in brackets.
func parseNATRange(w string, t *netfilter.Translate) bool {
	addrs, ports := w, ""
	switch {
	case strings.HasPrefix(w, "["):
		end := strings.LastIndexByte(w, ']')
		if end < 0 {
			return false
		}
		addrs, ports = w[1:end], w[end+1:]
		addrs = strings.ReplaceAll(addrs, "]-[", "-")
		if ports != "" && ports[0] != ':' {
			return false
		}
		ports = strings.TrimPrefix(ports, ":")
	case strings.Count(w, ":") == 1:
		addrs, ports, _ = strings.Cut(w, ":")
	}
	if addrs != "" {
		r, ok := parseAddrRange(addrs)
		if !ok {
			return false
		}
		t.Addrs = r
	}
	if ports == "" {
		return addrs != ""
	}
	ports, base, shifted := strings.Cut(ports, "/")
	if shifted {
		n, err := strconv.ParseUint(base, 10, 16)
		if err != nil {
			return false
		}
		t.Base = uint16(n)
	}
	var ok bool
	t.Ports, ok = parsePorts(ports, "-")
	return ok
}

const allBits = 0xffffffff

func setMarkOption(p *ruleReader, opt string) bool {
	if _, ok := p.target.(netfilter.SetMark); !ok {
		return false
	}
	v, m, ok := p.xmark(opt)
	if ok {
		p.target = netfilter.SetMark{Value: v, Mask: m}
	}
	return ok
}

// xmark reads the five ways of writing a change of a mark.
func (p *ruleReader) xmark(opt string) (value, mask uint32, ok bool) {
	switch opt {
	case "--set-xmark":
		v, m := p.masked(p.value(opt), allBits)
		return uint32(v), uint32(m), true
	case "--set-mark":
		v, m := p.masked(p.value(opt), allBits)
		return uint32(v), uint32(v | m), true
	case "--or-mark":
		v := p.number(p.value(opt), 32)
		return uint32(v), uint32(v), true
	case "--xor-mark":
		return uint32(p.number(p.value(opt), 32)), 0, true
	case "--and-mark":
		return 0, ^uint32(p.number(p.value(opt), 32)), true
	}
	return 0, 0, false
}

func setConnMarkOption(p *ruleReader, opt string) bool {
	t, ok := p.target.(netfilter.SetConnMark)
	if !ok {
		return false
	}
	switch opt {
	case "--save-mark":
		t.Op = netfilter.ConnMarkSave
	case "--restore-mark":
		t.Op = netfilter.ConnMarkRestore
	case "--nfmask":
		t.NFMask = uint32(p.number(p.value(opt), 32))
	case "--ctmask":
		t.CTMask = uint32(p.number(p.value(opt), 32))
	case "--mask":
		t.NFMask = uint32(p.number(p.value(opt), 32))
		t.CTMask = t.NFMask
	default:
		v, m, ok := p.xmark(opt)
		if !ok {
			return false
		}
		t.Op, t.Value, t.CTMask = netfilter.ConnMarkSet, v, m
	}
	p.target = t
	return true
}

func rejectOption(p *ruleReader, opt string) bool {
	if opt != "--reject-with" {
		return false
	}
	p.target = netfilter.Reject{With: p.value(opt)}
	return true
}

func tproxyOption(p *ruleReader, opt string) bool {
	t, ok := p.target.(netfilter.TProxy)
	if !ok {
		return false
	}
	switch opt {
	case "--on-port":
		t.Port = uint16(p.number(p.value(opt), 16))
	case "--on-ip":
		w := p.value(opt)
		a, err := netip.ParseAddr(w)
		if err != nil {
			p.fail("TPROXY: %q is no address", w)
		}
		t.Addr = a
	case "--tproxy-mark":
		v, m := p.masked(p.value(opt), allBits)
		t.Value, t.Mask = uint32(v), uint32(m)
	default:
		return false
	}
	p.target = t
	return true
}
