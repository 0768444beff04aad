package iptables

import (
	"slices"
	"strings"
)

// Canonical maps a rule, without "-A CHAIN", to the form in which this program
// writes it, whether it comes from there or from iptables-save of either
// variant: Canonical(written) == Canonical(saved) == written. The programs
// rewrite rules: words change place, /32 and REJECT's default appear,
// --or-mark comes back as --set-xmark, probabilities are rounded, comments are
// quoted.
//
// The order of words is that of kube-proxy: comment, set, physdev, addrtype, recent,
// protocol, destination, port, source, interface, mark, conntrack, nfacct,
// statistic, target; a bare "--ctstate NEW" comes first, and a recent that notes what
// statistic lets through behind it. A rule with a word that is not
// known here comes back with ok false and only its spaces normalised, so that
// it never equals a written one.
func Canonical(rule string) (canonical string, ok bool) {
	var room [48]string // for the words of most rules
	words, ok := split(room[:0], rule)
	if !ok {
		return rule, false
	}
	var r fields
	if !r.parse(words) {
		return strings.Join(words, " "), false
	}
	var b strings.Builder
	b.Grow(len(rule) + 16)
	r.write(&sentence{&b})
	return b.String(), true
}

// fields are the parts of the rules that this program writes.
type fields struct {
	comment                  string
	hasComment               bool
	set                      operand // name
	setDirections            string
	notBridged               bool // physdev ! --physdev-is-in
	protocol                 string
	protocolMatch            bool // "-m tcp" beside "-p tcp"
	dst, src, in, mark       operand
	ctstate                  operand
	dport                    string
	srcType, dstType         operand
	recentName, recentAction string
	seconds                  string
	reap                     bool
	nfacct                   string
	mode, probability, every string // of statistic
	target                   string
	targetArgs               string
}

// operand is a value that "!" can precede.
type operand struct {
	value string
	not   bool
}

// parse reads the words; false if there is one that it does not know, or one
// that contradicts another.
func (r *fields) parse(words []string) bool {
	not := false
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if word == "!" {
			if not {
				return false
			}
			not = true
			continue
		}
		n, ok := r.take(word, words, not)
		if !ok || n > len(words) || (word != "--comment" && slices.ContainsFunc(words[:n], unusual)) {
			return false
		}
		words, not = words[n:], false
	}
	return !not
}

// unusual words would be read differently where they are written again.
func unusual(word string) bool { return word == "" || strings.ContainsAny(word, " \t\n\"\\!") }

// take reads one option and tells how many words followed it.
func (r *fields) take(word string, args []string, not bool) (int, bool) {
	if !not && r.takeFlag(word) {
		return 0, true
	}
	switch {
	case word == "--physdev-is-in" && not:
		r.notBridged = true
		return 0, true
	case len(args) == 0:
		return 0, false
	case word == "--match-set" && len(args) > 1:
		r.setDirections = args[1]
		return 2, set(&r.set, operand{args[0], not})
	case r.takeOperand(word, args[0], not):
		return 1, true
	case not:
		return 0, false
	case word == "-j":
		return r.takeTarget(args[0], args[1:])
	}
	return 1, r.takeValue(word, args[0])
}

// takeOperand reads options that "!" can precede.
func (r *fields) takeOperand(word, arg string, not bool) bool {
	switch word {
	case "-d", "--destination":
		prefix, ok := writtenPrefix(arg, not)
		return ok && set(&r.dst, operand{prefix, not})
	case "-s", "--source":
		if !not && (arg == "0.0.0.0/0" || arg == "::/0") { // left out by save
			return true
		}
		prefix, ok := writtenPrefix(arg, not)
		return ok && set(&r.src, operand{prefix, not})
	case "-i", "--in-interface":
		return set(&r.in, operand{arg, not})
	case "--mark":
		mark, ok := writtenMark(arg)
		return ok && set(&r.mark, operand{mark, not})
	case "--ctstate":
		return set(&r.ctstate, operand{arg, not})
	case "--src-type":
		return set(&r.srcType, operand{arg, not})
	case "--dst-type":
		return set(&r.dstType, operand{arg, not})
	}
	return false
}

// takeValue takes an option with one value; false when the rule is none of ours, because
// of the option or of the value.
func (r *fields) takeValue(word, arg string) bool {
	switch word {
	case "-m":
		r.protocolMatch = r.protocolMatch || isProtocol(arg)
		return knownMatch(arg)
	case "-p", "--protocol":
		return isProtocol(arg) && setText(&r.protocol, arg)
	case "--comment":
		known := !r.hasComment && !strings.ContainsAny(arg, "\t\n\"\\")
		r.comment, r.hasComment = arg, true
		return known
	case "--dport":
		r.protocolMatch = true
		return setText(&r.dport, arg)
	case "--seconds":
		return setText(&r.seconds, arg)
	case "--name":
		return setText(&r.recentName, arg)
	case "--mask": // of recent, written by save only
		return arg == "255.255.255.255" || arg == "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	case "--nfacct-name":
		return setText(&r.nfacct, arg)
	}
	return r.takeStatistic(word, arg)
}

// takeStatistic reads the options of the statistic match; which they are is said
// first.
func (r *fields) takeStatistic(word, arg string) bool {
	switch {
	case word == "--mode":
		// An address is put into a list only if the statistic lets it.
		return (arg == "random" || arg == "nth") && r.recentAction != "--set" && setText(&r.mode, arg)
	case word == "--probability" && r.mode == "random":
		p, ok := writtenProbability(arg)
		return ok && setText(&r.probability, p)
	case word == "--every" && r.mode == "nth":
		return setText(&r.every, arg)
	case word == "--packet" && r.mode == "nth":
		return arg == "0"
	}
	return false
}

// takeFlag reads options without a value.
func (r *fields) takeFlag(word string) bool {
	switch word {
	case "--rcheck", "--update", "--set":
		return setText(&r.recentAction, word)
	case "--reap":
		r.reap = true
		return true
	}
	return word == "--rsource"
}

// takeTarget reads the target, which is last, with its options.
func (r *fields) takeTarget(target string, args []string) (int, bool) {
	r.target, r.targetArgs = target, strings.Join(args, " ")
	n := len(args) + 1
	switch target {
	case "REJECT":
		switch r.targetArgs {
		case "--reject-with icmp-port-unreachable", "--reject-with icmp6-port-unreachable":
			r.targetArgs = ""
		}
		return n, r.targetArgs == ""
	case "MARK":
		args, ok := writtenMarkTarget(args)
		r.targetArgs = args
		return n, ok
	case "MASQUERADE":
		return n, len(args) == 0 || r.targetArgs == "--random-fully"
	case "DNAT":
		return n, len(args) == 2 && args[0] == "--to-destination"
	}
	return n, len(args) == 0
}

func knownMatch(name string) bool {
	switch name {
	case "comment", "conntrack", "addrtype", "mark", "recent", "statistic", "nfacct", "set", "physdev":
		return true
	}
	return isProtocol(name)
}

func isProtocol(name string) bool { return name == "tcp" || name == "udp" || name == "sctp" }

func set(field *operand, value operand) bool {
	if field.value != "" {
		return false
	}
	*field = value
	return true
}

func setText(field *string, value string) bool {
	if *field != "" {
		return false
	}
	*field = value
	return true
}

// sentence is written word by word.
type sentence struct{ *strings.Builder }

func (s *sentence) add(words ...string) {
	for _, w := range words {
		if s.Len() > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(w)
	}
}

func (s *sentence) addOperand(option string, o operand) {
	switch {
	case o.value == "":
	case o.not:
		s.add("!", option, o.value)
	default:
		s.add(option, o.value)
	}
}

// write writes the rule.
func (r *fields) write(s *sentence) {
	r.writeStart(s)
	if r.protocol != "" {
		if r.protocolMatch {
			s.add("-m", r.protocol)
		}
		s.add("-p", r.protocol)
	}
	s.addOperand("-d", r.dst)
	if r.dport != "" {
		s.add("--dport", r.dport)
	}
	s.addOperand("-s", r.src)
	s.addOperand("-i", r.in)
	if r.mark.value != "" {
		s.add("-m", "mark")
		s.addOperand("--mark", r.mark)
	}
	if r.ctstate.value != "" && !r.newOnly() {
		s.add("-m", "conntrack")
		s.addOperand("--ctstate", r.ctstate)
	}
	if r.nfacct != "" {
		s.add("-m", "nfacct", "--nfacct-name", r.nfacct)
	}
	if r.probability != "" {
		s.add("-m", "statistic", "--mode", "random", "--probability", r.probability)
	}
	if r.every != "" {
		s.add("-m", "statistic", "--mode", "nth", "--every", r.every, "--packet", "0")
	}
	if r.setsLast() {
		r.writeRecent(s)
	}
	if r.target != "" {
		s.add("-j", r.target)
	}
	if r.targetArgs != "" {
		s.add(r.targetArgs)
	}
}

func (r *fields) newOnly() bool { return r.ctstate == operand{value: "NEW"} }

// writeStart writes the matches that stand before the protocol in the canonical form, in
// its order.
func (r *fields) writeStart(s *sentence) {
	if r.newOnly() {
		s.add("-m", "conntrack", "--ctstate", "NEW")
	}
	if r.hasComment {
		s.add("-m", "comment", "--comment", quoted(r.comment))
	}
	if r.set.value != "" {
		s.add("-m", "set")
		s.addOperand("--match-set", r.set)
		s.add(r.setDirections)
	}
	if r.notBridged {
		s.add("-m", "physdev", "!", "--physdev-is-in")
	}
	if r.srcType.value != "" || r.dstType.value != "" {
		s.add("-m", "addrtype")
		s.addOperand("--src-type", r.srcType)
		s.addOperand("--dst-type", r.dstType)
	}
	if !r.setsLast() {
		r.writeRecent(s)
	}
}

// setsLast tells that recent notes what a statistic lets through, which is then first.
func (r *fields) setsLast() bool { return r.recentAction == "--set" && r.mode != "" }

// writeRecent writes the options in the order of iptables-save.
func (r *fields) writeRecent(s *sentence) {
	if r.recentName == "" {
		return
	}
	s.add("-m", "recent", "--name", r.recentName, r.recentAction)
	if r.seconds != "" {
		s.add("--seconds", r.seconds)
	}
	if r.reap {
		s.add("--reap")
	}
}

// quoted puts a comment in quotes if it has to be.
func quoted(comment string) string {
	if comment != "" && strings.IndexByte(comment, ' ') < 0 {
		return comment
	}
	return `"` + comment + `"`
}
