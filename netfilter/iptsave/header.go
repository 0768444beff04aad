package iptsave

import (
	"strconv"
	"strings"

	"portolan/netfilter"
)

var dscpClasses = map[string]uint64{
	"CS0": 0, "CS1": 8, "CS2": 16, "CS3": 24, "CS4": 32, "CS5": 40, "CS6": 48, "CS7": 56, "BE": 0, "EF": 46,
	"AF11": 10, "AF12": 12, "AF13": 14, "AF21": 18, "AF22": 20, "AF23": 22, "AF31": 26, "AF32": 28, "AF33": 30, "AF41": 34, "AF42": 36, "AF43": 38,
}

// headerOption serves the modules that compare one header field.
func headerOption(p *ruleReader, opt string) bool {
	m := netfilter.Header{}
	var w string
	ok := true
	switch opt {
	case "--length":
		w = p.value(opt)
		m.Field = netfilter.FieldLength
		m.Range, ok = parseNumbers(w)
	case "--mss":
		w = p.value(opt)
		m.Field = netfilter.FieldMSS
		m.Range, ok = parseNumbers(w)
	case "--ttl-eq", "--hl-eq":
		w = p.value(opt)
		m.Field = netfilter.FieldTTL
		m.Range, ok = parseNumbers(w)
	case "--ttl-lt", "--hl-lt":
		w = p.value(opt)
		m.Field = netfilter.FieldTTL
		n := p.number(w, 8)
		m.Range = netfilter.NumberRange{First: 0, Last: max(n, 1) - 1}
		ok = n > 0
	case "--ttl-gt", "--hl-gt":
		w = p.value(opt)
		m.Field = netfilter.FieldTTL
		m.Range = netfilter.NumberRange{First: p.number(w, 8) + 1, Last: 255}
	case "--dscp", "--dscp-class":
		w = p.value(opt)
		m.Field = netfilter.FieldDSCP
		n, known := dscpClasses[strings.ToUpper(w)]
		if !known {
			n = p.number(w, 6)
		}
		m.Range = netfilter.NumberRange{First: n, Last: n}
	case "--tos":
		w = p.value(opt)
		m.Field = netfilter.FieldTOS
		v, mask := p.masked(w, 0xff)
		m.Range, m.Mask = netfilter.NumberRange{First: v, Last: v}, mask
	default:
		return false
	}
	if !ok {
		p.addUnknown(opt, w, "not a number the module takes")
		return true
	}
	m.Text, m.Not = opt+" "+w, p.optNot
	p.add(m)
	return true
}

// bpfOption reads a program as iptables saves it: "4,48 0 0 9,21 0 1 6,...",
// the count first.
func bpfOption(p *ruleReader, opt string) bool {
	switch opt {
	case "--object-pinned":
		p.add(netfilter.BPF{Text: opt + " " + p.value(opt)})
		return true
	case "--bytecode":
	default:
		return false
	}
	w := p.value(opt)
	parts := strings.Split(w, ",")
	n, err := strconv.Atoi(parts[0])
	if p.err == nil && (err != nil || n != len(parts)-1 || n < 1 || n > 64) {
		p.fail("bpf: %q does not begin with its number of instructions", w)
		return true
	}
	m := netfilter.BPF{Text: opt + " " + w}
	for _, part := range parts[1:] {
		f := strings.Fields(part)
		if len(f) != 4 {
			p.fail("bpf: instruction %q has not four numbers", part)
			return true
		}
		m.Code = append(m.Code, netfilter.BPFInstruction{
			Op: uint16(p.number(f[0], 16)), JT: uint8(p.number(f[1], 8)), JF: uint8(p.number(f[2], 8)), K: uint32(p.number(f[3], 32)),
		})
	}
	p.add(m)
	return true
}

// u32Option reads "start&mask=value[:value][,...] && ...".
func u32Option(p *ruleReader, opt string) bool {
	if opt != "--u32" {
		return false
	}
	w := p.value(opt)
	m := netfilter.U32{Text: w, Not: p.optNot}
	for _, part := range strings.Split(strings.ReplaceAll(w, " ", ""), "&&") {
		t, ok := parseU32(part)
		if !ok {
			p.addUnknown(opt, w, "the expression is not understood")
			return true
		}
		m.Tests = append(m.Tests, t)
	}
	p.add(m)
	return true
}

// parseU32 reads one test of xt_u32: a location, with its operators, and the ranges of
// values.
func parseU32(s string) (netfilter.U32Test, bool) {
	var t netfilter.U32Test
	loc, vals, ok := strings.Cut(s, "=")
	if !ok {
		return t, false
	}
	op := byte('=')
	for loc != "" {
		end := strings.IndexAny(loc, "&<>@")
		word, rest := loc, ""
		if end >= 0 {
			word, rest = loc[:end], loc[end:]
		}
		n, err := strconv.ParseUint(word, 0, 32)
		if err != nil {
			return t, false
		}
		t.Steps = append(t.Steps, netfilter.U32Step{Op: op, Number: uint32(n)})
		switch {
		case rest == "":
			loc = ""
		case strings.HasPrefix(rest, "<<"), strings.HasPrefix(rest, ">>"):
			op, loc = rest[0], rest[2:]
		case rest[0] == '&', rest[0] == '@':
			op, loc = rest[0], rest[1:]
		default:
			return t, false
		}
		if loc == "" && rest != "" {
			return t, false
		}
	}
	for _, v := range strings.Split(vals, ",") {
		r, ok := parseNumbers(v)
		if !ok {
			return t, false
		}
		t.Ranges = append(t.Ranges, r)
	}
	return t, len(t.Steps) > 0
}
