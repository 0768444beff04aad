package iptsave

import (
	"strings"
)

// words walks over the free text at the end of a listed rule.
type words struct {
	list []string
	line string // the whole line, for comments with runs of blanks
}

func (w *words) take() string {
	if len(w.list) == 0 {
		return ""
	}
	x := w.list[0]
	w.list = w.list[1:]
	return x
}

func (w *words) peek(i int) string {
	if i < len(w.list) {
		return w.list[i]
	}
	return ""
}

// is takes the given words if they come next.
func (w *words) is(want ...string) bool {
	for i, x := range want {
		if w.peek(i) != x {
			return false
		}
	}
	w.list = w.list[len(want):]
	return true
}

// extensions turns the words that matches and the target print into options.
func (b *spec) extensions(target string, list []string, line string) {
	w := &words{list: list, line: line}
	jump := "-j"
	var tail []string // options of the target
	for len(w.list) > 0 {
		switch {
		case w.is("[goto]"):
			jump = "-g"
		case b.commentWords(w), b.protocolWords(w), b.moduleWords(w):
		default:
			if opts := targetWords(target, w); opts != nil {
				tail = append(tail, opts...)
				continue
			}
			b.unknown = strings.TrimSpace(b.unknown + " " + w.take())
		}
	}
	if target != "" {
		b.target.WriteString(strings.Join(append([]string{jump, target}, tail...), " "))
	}
}

// commentWords reads /* ... */. The text is taken from the line itself, since
// blanks count.
func (b *spec) commentWords(w *words) bool {
	if w.peek(0) != "/*" {
		return false
	}
	start := strings.Index(w.line, "/* ")
	end := -1
	if start >= 0 {
		end = strings.Index(w.line[start:], " */")
	}
	if end < 0 {
		return false
	}
	text := ""
	if end >= 3 {
		text = w.line[start+3 : start+end]
	}
	for w.take() != "*/" {
		if len(w.list) == 0 {
			break
		}
	}
	b.add("-m", "comment", "--comment", quote(text))
	return true
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// protocolWords reads what tcp, udp, sctp and icmp print.
func (b *spec) protocolWords(w *words) bool {
	switch p := w.peek(0); p {
	case "tcp", "udp", "sctp", "dccp", "udplite":
		w.take()
		b.add("-m", p)
		for b.portWords(w) {
		}
		return true
	case "icmptype", "ipv6-icmptype":
		w.take()
		opt := "--icmp-type"
		mod := "icmp"
		if p == "ipv6-icmptype" {
			opt, mod = "--icmpv6-type", "icmp6"
		}
		v := w.take()
		if w.peek(0) == "code" {
			w.take()
			v += "/" + w.take()
		}
		b.add("-m", mod)
		b.negated(opt, v)
		return true
	}
	return false
}

func (b *spec) portWords(w *words) bool {
	for prefix, opt := range map[string]string{"dpt:": "--dport", "dpts:": "--dport", "spt:": "--sport", "spts:": "--sport"} {
		if v, ok := strings.CutPrefix(w.peek(0), prefix); ok {
			w.take()
			b.negated(opt, v)
			return true
		}
	}
	if v, ok := strings.CutPrefix(w.peek(0), "flags:"); ok {
		w.take()
		not := strings.HasPrefix(v, "!")
		mask, comp, _ := strings.Cut(strings.TrimPrefix(v, "!"), "/")
		if not {
			b.add("!")
		}
		b.add("--tcp-flags", flagNames(mask), flagNames(comp))
		return true
	}
	return false
}

// flagNames turns 0x17 into FIN,SYN,RST,ACK; names stay.
func flagNames(w string) string {
	if !strings.HasPrefix(w, "0x") {
		return w
	}
	var q ruleReader
	n := q.number(w, 8)
	var names []string
	for _, f := range []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG"} {
		if n&uint64(tcpFlagNames[f]) != 0 {
			names = append(names, f)
		}
	}
	if len(names) == 0 {
		return "NONE"
	}
	return strings.Join(names, ",")
}

// moduleWords reads what the other match modules print.
func (b *spec) moduleWords(w *words) bool {
	not := w.peek(0) == "!" && (strings.HasPrefix(w.peek(1), "ct") || w.peek(1) == "match-set" || w.peek(1) == "owner" || w.peek(1) == "state")
	if not {
		w.take()
	}
	first := w.peek(0)
	switch {
	case w.is("ADDRTYPE", "match"):
		b.add("-m", "addrtype")
		for strings.HasSuffix(w.peek(0), "-type") || strings.HasPrefix(w.peek(0), "limit-") {
			opt := w.take()
			switch opt {
			case "limit-in", "limit-out":
				b.add("--limit-iface-" + opt[len("limit-"):])
			default:
				b.negated("--"+opt, w.take())
			}
		}
	case first == "state":
		w.take()
		b.add("-m", "state")
		b.option(not, "--state", w.take())
	case first == "ctstate" || first == "ctstatus" || first == "ctdir" || first == "ctproto" || strings.HasPrefix(first, "ctorig") || strings.HasPrefix(first, "ctrepl"):
		w.take()
		b.add("-m", "conntrack")
		b.option(not, "--"+first, w.take())
	case w.is("mark", "match"):
		b.add("-m", "mark")
		b.option(w.is("!"), "--mark", w.take())
	case w.is("connmark", "match"):
		b.add("-m", "connmark")
		b.option(w.is("!"), "--mark", w.take())
	case w.is("match-set"):
		b.add("-m", "set")
		b.option(not, "--match-set", w.take()+" "+w.take())
	case w.is("nfacct-name"):
		b.add("-m", "nfacct", "--nfacct-name", w.take())
	case w.is("owner", "UID", "match"):
		b.add("-m", "owner")
		b.option(not, "--uid-owner", w.take())
	case w.is("owner", "GID", "match"):
		b.add("-m", "owner")
		b.option(not, "--gid-owner", w.take())
	default:
		if not {
			b.unknown = strings.TrimSpace(b.unknown + " !")
		}
		return b.countingWords(w)
	}
	return true
}

func (b *spec) option(not bool, opt, value string) {
	if not {
		b.add("!")
	}
	b.add(opt, value)
}

// countingWords reads statistic, recent, limit, multiport and physdev.
func (b *spec) countingWords(w *words) bool {
	switch {
	case w.is("statistic", "mode"):
		b.add("-m", "statistic", "--mode", w.take())
		for len(w.list) > 0 {
			not := w.peek(0) == "!"
			word := w.peek(0)
			if not {
				word = w.peek(1)
			}
			if word != "probability" && word != "every" && word != "packet" {
				break
			}
			if not {
				w.take()
				b.add("!")
			}
			b.add("--"+w.take(), w.take())
		}
	case w.is("recent:"), w.is("!recent:"):
		b.recentWords(w)
	case w.is("limit:", "avg"):
		b.add("-m", "limit", "--limit", w.take())
		if w.is("burst") {
			b.add("--limit-burst", w.take())
		}
	case w.is("multiport"):
		b.add("-m", "multiport")
		opt := "--" + w.take()
		not := w.is("!")
		b.option(not, opt, w.take())
	case w.is("PHYSDEV", "match"):
		b.add("-m", "physdev")
		for strings.HasPrefix(w.peek(0), "--physdev") || (w.peek(0) == "!" && strings.HasPrefix(w.peek(1), "--physdev")) {
			opt := w.take()
			if opt == "!" {
				b.add("!")
				opt = w.take()
			}
			b.add(opt)
			if opt == "--physdev-in" || opt == "--physdev-out" {
				b.add(w.take())
			}
		}
	case w.is("source", "IP", "range"):
		b.add("-m", "iprange", "--src-range", w.take())
	case w.is("destination", "IP", "range"):
		b.add("-m", "iprange", "--dst-range", w.take())
	default:
		return false
	}
	return true
}

func (b *spec) recentWords(w *words) {
	b.add("-m", "recent")
	if op, ok := map[string]string{"SET": "--set", "CHECK": "--rcheck", "UPDATE": "--update", "REMOVE": "--remove"}[w.peek(0)]; ok {
		w.take()
		b.add(op)
	}
	for len(w.list) > 0 {
		switch w.peek(0) {
		case "seconds:", "hit_count:", "name:", "mask:":
			opt := map[string]string{"seconds:": "--seconds", "hit_count:": "--hitcount", "name:": "--name", "mask:": "--mask"}[w.take()]
			b.add(opt, w.take())
		case "reap":
			w.take()
			b.add("--reap")
		case "TTL-Match":
			w.take()
			b.add("--rttl")
		case "side:":
			w.take()
			b.add(map[bool]string{true: "--rdest", false: "--rsource"}[w.take() == "dest"])
		default:
			return
		}
	}
}

// targetWords reads what a target prints; nil when the next word is not its.
func targetWords(target string, w *words) []string {
	first := w.peek(0)
	switch target {
	case "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP":
		switch {
		case strings.HasPrefix(first, "to:"):
			w.take()
			opt := map[string]string{"DNAT": "--to-destination", "SNAT": "--to-source", "NETMAP": "--to"}[target]
			return []string{opt, first[3:]}
		case first == "random" || first == "random-fully" || first == "persistent":
			return []string{"--" + w.take()}
		case w.is("masq", "ports:"), w.is("redir", "ports"):
			return []string{"--to-ports", w.take()}
		}
	case "MARK":
		if op := map[string]string{"or": "--or-mark", "xor": "--xor-mark", "and": "--and-mark", "set": "--set-mark", "xset": "--set-xmark"}[w.peek(1)]; first == "MARK" && op != "" {
			w.take()
			w.take()
			return []string{op, w.take()}
		}
	case "CONNMARK":
		if first == "CONNMARK" && (w.peek(1) == "save" || w.peek(1) == "restore") {
			w.take()
			opts := []string{"--" + w.take() + "-mark"}
			for w.peek(0) == "mask" || w.peek(0) == "nfmask" || w.peek(0) == "ctmask" {
				opts = append(opts, "--"+w.take(), w.take())
			}
			return opts
		}
	case "REJECT":
		if w.is("reject-with") {
			return []string{"--reject-with", w.take()}
		}
	case "LOG", "NFLOG", "ULOG", "CT", "NOTRACK", "TCPMSS", "NFQUEUE", "SET", "CHECKSUM", "TEE", "CLASSIFY":
		opts := w.list
		w.list = nil
		if target == "CT" && len(opts) > 1 && opts[1] == "notrack" {
			return []string{"--notrack"}
		}
		return append([]string{}, opts...)
	}
	return nil
}
