package iptsave

import (
	"fmt"
	"net/netip"
	"strings"

	"portolan/netfilter"
)

// ruleReader reads one rule specification after another. It is reused, so
// that a rule costs few allocations.
type ruleReader struct {
	scanner
	family netfilter.Family // of the addresses seen; 0 until one is

	arena   []netfilter.Match // matches of many rules, cut off as each ends
	matches []netfilter.Match
	target  netfilter.Target
	name    string // of the target
	goTo    bool
	not     bool
	optNot  bool // the "!" of the option being read
	proto   uint8
	only    netfilter.Family // -4 or -6 was given
	count   netfilter.Counters
	counted bool
	mods    []string // modules named so far
	open    pending  // the module whose options are being gathered
	err     error
}

// arenaSize is how many matches are allocated at a time.
const arenaSize = 4096

func (p *ruleReader) reset(line string) {
	p.scanner = scanner{line: line}
	if cap(p.arena)-len(p.arena) < 64 {
		p.arena = make([]netfilter.Match, 0, arenaSize)
	}
	p.matches = p.arena[len(p.arena):len(p.arena):cap(p.arena)]
	p.target, p.name, p.goTo, p.not, p.optNot, p.proto, p.only = nil, "", false, false, false, 0, 0
	p.count, p.counted = netfilter.Counters{}, false
	p.mods, p.err = p.mods[:0], nil
	p.open = nil
}

// read parses everything after "-A CHAIN".
func (p *ruleReader) read() error {
	for p.err == nil {
		w, ok := p.next()
		if !ok {
			break
		}
		if w == "!" {
			p.not = true
			continue
		}
		opt := w
		if strings.HasPrefix(w, "--") {
			if i := strings.IndexByte(w, '='); i > 0 {
				// --opt=value: leave the value to be read next.
				opt = w[:i]
				p.pos -= len(w) - i - 1
			}
		}
		p.option(opt)
	}
	p.close()
	if p.err != nil {
		return p.err
	}
	if n := len(p.matches); cap(p.arena)-len(p.arena) >= n && n > 0 {
		p.arena = p.arena[:len(p.arena)+n]
	}
	p.matches = p.matches[:len(p.matches):len(p.matches)]
	p.finishTarget()
	return p.err
}

func (p *ruleReader) fail(format string, a ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, a...)
	}
}

// value takes the option's value. The old form "-s ! x" is understood.
func (p *ruleReader) value(opt string) string {
	w, ok := p.next()
	if ok && w == "!" {
		p.optNot = true
		w, ok = p.next()
	}
	if !ok {
		p.fail("%s lacks a value", opt)
	}
	return w
}

func (p *ruleReader) add(m netfilter.Match) { p.matches = append(p.matches, m) }

// option reads one option with its values.
func (p *ruleReader) option(opt string) {
	p.optNot, p.not = p.not, false
	switch opt {
	case "-s", "--source", "--src":
		p.address(netfilter.SourceSide, opt)
	case "-d", "--destination", "--dst":
		p.address(netfilter.DestinationSide, opt)
	case "-p", "--protocol", "--proto":
		p.protocol(opt)
	case "-i", "--in-interface":
		name := p.value(opt)
		p.add(netfilter.Interface{Name: name, In: true, Not: p.optNot})
	case "-o", "--out-interface":
		name := p.value(opt)
		p.add(netfilter.Interface{Name: name, Not: p.optNot})
	case "-f", "--fragment", "--fragments":
		p.add(netfilter.Fragment{Not: p.optNot})
	case "-4", "--ipv4":
		p.only = netfilter.IPv4
	case "-6", "--ipv6":
		p.only = netfilter.IPv6
	case "-m", "--match":
		p.close()
		p.module(p.value(opt))
	case "-j", "--jump":
		p.close()
		p.jump(p.value(opt), false)
	case "-g", "--goto":
		p.close()
		p.jump(p.value(opt), true)
	case "-c", "--set-counters":
		p.count.Packets = p.number(p.value(opt), 64)
		p.count.Bytes = p.number(p.value(opt), 64)
		p.counted = true
	case "-w", "--wait":
		if w, ok := p.peek(); ok && isNumber(w) {
			p.value(opt)
		}
	default:
		p.moduleOption(opt)
	}
}

// module notes that a module's options may follow.
func (p *ruleReader) module(name string) {
	p.mods = append(p.mods, name)
	if open, ok := gathered[name]; ok {
		p.open = open()
		return
	}
	if _, ok := direct[name]; !ok && p.err == nil {
		p.add(p.unknownModule(name))
	}
}

// close ends the module that gathers options.
func (p *ruleReader) close() {
	if p.open != nil {
		p.add(p.open.finish())
		p.open = nil
	}
}

// moduleOption offers an option to the target, to the module being gathered,
// to the modules named before, and to the protocol's own module.
func (p *ruleReader) moduleOption(opt string) {
	if p.name != "" {
		if f := targetOptions[p.name]; f != nil && f(p, opt) {
			return
		}
	}
	if p.open != nil && p.open.option(p, opt) {
		return
	}
	for i := len(p.mods) - 1; i >= 0; i-- {
		if f := direct[p.mods[i]]; f != nil && f(p, opt) {
			return
		}
	}
	if f := protocolModule(p.proto); f != nil && f(p, opt) {
		return
	}
	p.unknownOption(opt)
}

// unknownOption keeps an option nobody knows as a match that is neither true
// nor false, or as part of an unknown target.
func (p *ruleReader) unknownOption(opt string) {
	if !strings.HasPrefix(opt, "-") {
		p.fail("%q is no option", opt)
		return
	}
	text := opt
	if p.optNot {
		text = "! " + opt
	}
	for {
		w, ok := p.peek()
		if !ok || w == "!" || (len(w) > 1 && w[0] == '-' && !isNumber(w[1:])) {
			break
		}
		p.next()
		text += " " + w
	}
	mod := ""
	if len(p.mods) > 0 {
		mod = p.mods[len(p.mods)-1]
	}
	if p.name != "" {
		p.target = netfilter.Unknown{Module: p.name, Text: text, Why: "the option is not known"}
		return
	}
	p.add(netfilter.Unknown{Module: mod, Text: text, Why: "the option is not known"})
}

// unknownModule takes everything up to the next module or target.
func (p *ruleReader) unknownModule(name string) netfilter.Match {
	return netfilter.Unknown{Module: name, Text: strings.TrimSpace("-m " + name + " " + p.takeOptions())}
}

// standard are the options that belong to no module.
var standard = map[string]bool{
	"-m": true, "-j": true, "-g": true, "--match": true, "--jump": true, "--goto": true,
	"-p": true, "-s": true, "-d": true, "-i": true, "-o": true, "-c": true,
}

// takeOptions reads the words up to the next option that is no module's.
func (p *ruleReader) takeOptions() string {
	p.skip()
	start := p.pos
	for {
		w, ok := p.peek()
		if !ok {
			break
		}
		at := p.pos
		if w == "!" {
			p.next()
			w, _ = p.peek()
		}
		if standard[w] {
			p.pos = at
			break
		}
		p.next()
	}
	return strings.TrimSpace(p.line[start:p.pos])
}

func (p *ruleReader) protocol(opt string) {
	w := p.value(opt)
	n, ok := netfilter.ProtoByName(w)
	if !ok {
		if !isNumber(w) {
			n, ok = netfilter.ProtoByName(strings.ToLower(w))
		} else {
			n, ok = uint8(p.number(w, 8)), true
		}
	}
	if !ok {
		p.add(netfilter.Unknown{Module: "-p", Text: "-p " + w, Why: "the protocol is not known by name"})
		return
	}
	p.proto = n
	if p.optNot {
		p.proto = 0
	}
	if n != 0 {
		p.add(netfilter.Protocol{Number: n, Not: p.optNot})
	}
}

func (p *ruleReader) address(side netfilter.Side, opt string) {
	w := p.value(opt)
	if p.err != nil {
		return
	}
	prefix, ok := parsePrefix(w)
	if !ok {
		if value, mask, ok := parseMasked(w); ok {
			p.sawAddress(value)
			p.add(netfilter.MaskedAddress{Side: side, Value: value, Mask: mask, Not: p.optNot})
			return
		}
		p.add(netfilter.Unknown{Module: opt, Text: opt + " " + w, Why: "not one prefix"})
		return
	}
	p.sawAddress(prefix.Addr())
	if prefix.Bits() == 0 && !p.optNot {
		return
	}
	p.add(netfilter.Address{Side: side, Prefix: prefix, Not: p.optNot})
}

func (p *ruleReader) sawAddress(a netip.Addr) {
	if p.family == 0 {
		p.family = netfilter.FamilyOf(a)
	}
}
