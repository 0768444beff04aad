package e2e

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ruleset is a text of rules, cut so that parts of it can be mutated.
type ruleset struct {
	lines []string
	// rules are the lines that are rules of Services' chains, or lead to them; chain
	// is what they are in, with the table.
	rules []int
	chain map[int]string
	// elements are lines that hold one element of a map or set of a table of
	// nftables; kind is the type of the map.
	elements []int
	kind     map[int]string
}

// readSaved cuts the output of iptables-save.
func readSaved(text string) ruleset {
	r := ruleset{lines: strings.Split(text, "\n"), chain: map[int]string{}}
	table := ""
	for i, line := range r.lines {
		if strings.HasPrefix(line, "*") {
			table = line
		}
		if chain, is := strings.CutPrefix(line, "-A "); is && strings.Contains(line, "KUBE-") {
			chain, _, _ = strings.Cut(chain, " ")
			r.rules, r.chain[i] = append(r.rules, i), table+" "+chain
		}
	}
	return r
}

// readTable cuts the listing of a table of nftables: one element a line.
func readTable(text string) ruleset {
	text = elementList.ReplaceAllStringFunc(text, func(list string) string {
		inside := strings.TrimSuffix(strings.TrimPrefix(list, "elements = {"), "}")
		var out []string
		for _, e := range splitElements(inside) {
			out = append(out, "\t\t\t"+strings.TrimSpace(e)+",")
		}
		return "elements = {\n" + strings.Join(out, "\n") + "\n}"
	})
	r := ruleset{lines: strings.Split(text, "\n"), chain: map[int]string{}, kind: map[int]string{}}
	block, kind, inside := "", "", false
	for i, line := range r.lines {
		word := strings.TrimSpace(line)
		switch {
		case strings.HasSuffix(word, " {") && !strings.HasPrefix(word, "table"):
			block = strings.TrimSuffix(word, " {")
		case strings.HasPrefix(word, "type ") || strings.HasPrefix(word, "typeof "):
			kind = word
		}
		switch {
		case word == "elements = {":
			inside = true
		case inside && word == "}":
			inside = false
		case inside:
			r.elements, r.kind[i] = append(r.elements, i), kind
		case strings.HasPrefix(block, "chain ") && !strings.HasSuffix(word, "{") && word != "}" && word != "" && !strings.HasPrefix(word, "type ") && !strings.HasPrefix(word, "comment "):
			r.rules, r.chain[i] = append(r.rules, i), block
		}
	}
	return r
}

var elementList = regexp.MustCompile(`(?s)elements = \{.*?\}`)

// splitElements splits at commas; what is in braces has none.
func splitElements(text string) (out []string) {
	for e := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(e) != "" {
			out = append(out, e)
		}
	}
	return out
}

// mutate changes one thing, and says what.
func (r *ruleset) mutate(rnd *rand.Rand) (text, what string) {
	lines := slices.Clone(r.lines)
	from := r.rules
	if len(r.elements) > 0 && rnd.IntN(2) == 0 {
		from = r.elements
	}
	i := from[rnd.IntN(len(from))]
	switch n := rnd.IntN(10); {
	case n < 2:
		what = "delete " + lines[i]
		lines = slices.Delete(lines, i, i+1)
	case n < 3:
		what = "duplicate " + lines[i]
		lines = slices.Insert(lines, i, lines[i])
	case n < 4:
		j := from[rnd.IntN(len(from))]
		what = fmt.Sprintf("swap %s with %s", lines[i], lines[j])
		lines[i], lines[j] = r.inPlace(j, i), r.inPlace(i, j)
	case n < 5:
		j := from[rnd.IntN(len(from))]
		moved := r.inPlace(i, j)
		what = fmt.Sprintf("move %s before %s", lines[i], lines[j])
		lines = slices.Insert(lines, j, moved)
		if j <= i {
			i++
		}
		lines = slices.Delete(lines, i, i+1)
	default:
		var changed string
		changed, what = edit(lines[i], r, rnd)
		what = "edit " + strings.TrimSpace(lines[i]) + ": " + what
		lines[i] = changed
	}
	return strings.Join(lines, "\n"), what
}

// inPlace is line i as it has to be written in place of line j.
func (r *ruleset) inPlace(i, j int) string {
	line := r.lines[i]
	if rest, is := strings.CutPrefix(line, "-A "); is {
		_, rest, _ = strings.Cut(rest, " ")
		_, chain, _ := strings.Cut(r.chain[j], " ")
		return "-A " + chain + " " + rest
	}
	return line
}

// edits change one word of a rule or an element.
var edits = []struct {
	what string
	re   *regexp.Regexp
	by   func(found string, rnd *rand.Rand) string
}{
	{"another port", regexp.MustCompile(`--dport \d+|:\d+$|\. (80|443|53|30080|30081|30082|30086|8080|8443)\b`), nextNumber},
	{"another address", regexp.MustCompile(`\b(10\.96\.0|10\.244\.[12]|203\.0\.113|192\.0\.2)\.\d+`), nextNumber},
	{"another mask", regexp.MustCompile(`/(16|24|29)\b`), nextNumber},
	{"not", regexp.MustCompile(`! -|!= `), func(s string, _ *rand.Rand) string { return strings.NewReplacer("! -", "-", "!= ", "").Replace(s) }},
	{"otherwise", regexp.MustCompile(` -s | -d |saddr 1|daddr @cluster-ips`), func(s string, _ *rand.Rand) string {
		return strings.NewReplacer(" -s ", " ! -s ", " -d ", " ! -d ", "saddr 1", "saddr != 1", "daddr @", "daddr != @").Replace(s)
	}},
	{"another protocol", regexp.MustCompile(`\btcp\b|\budp\b`), func(s string, _ *rand.Rand) string { return map[string]string{"tcp": "udp", "udp": "tcp"}[s] }},
	{"another mark", regexp.MustCompile(`0x(0000)?4000\b`), func(s string, _ *rand.Rand) string { return strings.Replace(s, "4000", "8000", 1) }},
	{"another probability", regexp.MustCompile(`--probability [0-9.]+`), func(string, *rand.Rand) string { return "--probability 0.95" }},
	{"another choice", regexp.MustCompile(`mod 2\b`), func(string, *rand.Rand) string { return "mod 1" }},
	{"another verdict", regexp.MustCompile(`-j (DROP|ACCEPT|RETURN|REJECT --reject-with icmp-port-unreachable)|\b(drop|accept|reject|return)$|: drop`), otherVerdict},
	{"another chain", regexp.MustCompile(`(-j|goto|jump) [-A-Za-z0-9_/.]+`), nil},
	{"another direction", regexp.MustCompile(`\bdaddr\b|--dst-type|--src-type|saddr`), func(s string, _ *rand.Rand) string {
		return map[string]string{"daddr": "saddr", "saddr": "daddr", "--dst-type": "--src-type", "--src-type": "--dst-type"}[s]
	}},
}

// edit makes one of the edits that fit a line; what is "" when none does.
func edit(line string, r *ruleset, rnd *rand.Rand) (changed, what string) {
	for _, k := range rnd.Perm(len(edits)) {
		e := edits[k]
		found := e.re.FindAllStringIndex(line, -1)
		if len(found) == 0 {
			continue
		}
		at := found[rnd.IntN(len(found))]
		word := line[at[0]:at[1]]
		by := ""
		if e.by == nil {
			by = r.otherChain(word, rnd)
		} else {
			by = e.by(word, rnd)
		}
		if out := line[:at[0]] + by + line[at[1]:]; out != line {
			return out, e.what + ", " + by
		}
	}
	return line, ""
}

// nextNumber adds one to the last number of a text.
func nextNumber(s string, _ *rand.Rand) string {
	at := strings.LastIndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) + 1
	n, err := strconv.Atoi(s[at:])
	if err != nil {
		panic(err)
	}
	return s[:at] + strconv.Itoa(n+1)
}

func otherVerdict(s string, rnd *rand.Rand) string {
	all := []string{"-j DROP", "-j ACCEPT", "-j RETURN"}
	if !strings.HasPrefix(s, "-j") {
		all = []string{"drop", "accept", "return"}
	}
	if strings.HasPrefix(s, ": ") {
		return ": accept"
	}
	return all[rnd.IntN(len(all))]
}

// otherChain leads to another chain that some rule leads to.
func (r *ruleset) otherChain(word string, rnd *rand.Rand) string {
	verb, _, _ := strings.Cut(word, " ")
	re := regexp.MustCompile(`\b` + strings.TrimPrefix(verb, "-") + ` ([-A-Za-z0-9_/.]+)`)
	var all []string
	for _, line := range r.lines {
		if m := re.FindStringSubmatch(line); m != nil && (verb != "-j" || strings.HasPrefix(m[1], "KUBE-")) {
			all = append(all, verb+" "+m[1])
		}
	}
	return all[rnd.IntN(len(all))]
}
