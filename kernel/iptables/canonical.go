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
	words, ok := split(rule)
	if !ok {
		return rule, false
	}
	var r fields
	if !r.parse(words) {
		return strings.Join(words, " "), false
	}
	return r.String(), true
}

// split cuts a rule into words as iptables-restore does: quotes keep spaces, a
// backslash keeps the next character.
func split(rule string) ([]string, bool) {
	var words []string
	var word strings.Builder
	quoted, started := false, false
	for i := 0; i < len(rule); i++ {
		switch c := rule[i]; {
		case c == '\\' && quoted && i+1 < len(rule):
			i++
			word.WriteByte(rule[i])
		case c == '"':
			quoted, started = !quoted, true
		case (c == ' ' || c == '\t') && !quoted:
			if started {
				words = append(words, word.String())
				word.Reset()
				started = false
			}
		default:
			word.WriteByte(c)
			started = true
		}
	}
	if started {
		words = append(words, word.String())
	}
	return words, !quoted
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

// String writes the rule.
func (r *fields) String() string {
	var b strings.Builder
	add := func(words ...string) {
		for _, w := range words {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(w)
		}
	}
	addOperand := func(option string, o operand) {
		switch {
		case o.value == "":
		case o.not:
			add("!", option, o.value)
		default:
			add(option, o.value)
		}
	}
	r.writeStart(add, addOperand)
	if r.protocol != "" {
		if r.protocolMatch {
			add("-m", r.protocol)
		}
		add("-p", r.protocol)
	}
	addOperand("-d", r.dst)
	if r.dport != "" {
		add("--dport", r.dport)
	}
	addOperand("-s", r.src)
	addOperand("-i", r.in)
	if r.mark.value != "" {
		add("-m", "mark")
		addOperand("--mark", r.mark)
	}
	if r.ctstate.value != "" && !r.newOnly() {
		add("-m", "conntrack")
		addOperand("--ctstate", r.ctstate)
	}
	if r.nfacct != "" {
		add("-m", "nfacct", "--nfacct-name", r.nfacct)
	}
	if r.probability != "" {
		add("-m", "statistic", "--mode", "random", "--probability", r.probability)
	}
	if r.every != "" {
		add("-m", "statistic", "--mode", "nth", "--every", r.every, "--packet", "0")
	}
	if r.setsLast() {
		r.writeRecent(add)
	}
	if r.target != "" {
		add("-j", r.target)
	}
	if r.targetArgs != "" {
		add(r.targetArgs)
	}
	return b.String()
}

func (r *fields) newOnly() bool { return r.ctstate == operand{value: "NEW"} }

func (r *fields) writeStart(add func(...string), addOperand func(string, operand)) {
	if r.newOnly() {
		add("-m", "conntrack", "--ctstate", "NEW")
	}
	if r.hasComment {
		add("-m", "comment", "--comment", quoted(r.comment))
	}
	if r.set.value != "" {
		add("-m", "set")
		addOperand("--match-set", r.set)
		add(r.setDirections)
	}
	if r.notBridged {
		add("-m", "physdev", "!", "--physdev-is-in")
	}
	if r.srcType.value != "" || r.dstType.value != "" {
		add("-m", "addrtype")
		addOperand("--src-type", r.srcType)
		addOperand("--dst-type", r.dstType)
	}
	if !r.setsLast() {
		r.writeRecent(add)
	}
}

// setsLast tells that recent notes what a statistic lets through, which is then first.
func (r *fields) setsLast() bool { return r.recentAction == "--set" && r.mode != "" }

func (r *fields) writeRecent(add func(...string)) {
	if r.recentName == "" {
		return
	}
	add("-m", "recent", "--name", r.recentName, r.recentAction)
	if r.seconds != "" {
		add("--seconds", r.seconds)
	}
	if r.reap {
		add("--reap")
	}
}

// quoted puts a comment in quotes if it has to be.
func quoted(comment string) string {
	if comment != "" && strings.IndexByte(comment, ' ') < 0 {
		return comment
	}
	return `"` + comment + `"`
}
