package nfttext

import (
	"strconv"
	"strings"

	"portolan/netfilter"
)

// rule is a rule while it is read; the scanner's text ends where the rule
// does.
type rule struct {
	*parser
	netfilter.Rule
	table *table
}

// read reads all statements. The first one that is not understood takes the
// rest of the rule along.
func (r *rule) read() {
	for {
		begin := r.peek()
		if begin.kind == end {
			return
		}
		if !r.statement() {
			r.pos = begin.at
			rest := text(r.text[begin.at:r.stop])
			r.add(netfilter.Unknown{Text: rest, Why: ""})
			return
		}
	}
}

func (r *rule) add(s netfilter.Statement) { r.Statements = append(r.Statements, s) }

// since is the text from a token to here.
func (r *rule) since(t token) string { return text(r.text[t.at:r.pos]) }

// words moves behind the words if they are next.
func (r *rule) words(ws ...string) bool {
	pos := r.pos
	for _, w := range ws {
		if t := r.next(); !(t.kind == word && t.text == w) {
			r.pos = pos
			return false
		}
	}
	return true
}

// statement reads one statement; false when it is not understood.
func (r *rule) statement() bool {
	t := r.peek()
	if t.kind != word {
		return r.condition()
	}
	switch t.text {
	case "accept", "drop", "continue", "return", "jump", "goto":
		r.next()
		if t.text == "jump" || t.text == "goto" {
			t.text += " " + r.next().text
		}
		v := verdictOf(t.text)
		if v == nil {
			return false
		}
		r.add(v)
		return true
	case "comment":
		r.next()
		r.add(netfilter.Comment{Text: r.next().text})
		return true
	case "counter":
		r.next()
		return r.counter()
	case "limit", "quota":
		r.next()
		return r.metered(t)
	case "log":
		r.next()
		return r.log(t)
	case "reject":
		r.next()
		return r.reject()
	case "queue":
		r.next()
		return r.queue(t)
	case "snat", "dnat", "masquerade", "redirect":
		r.next()
		return r.nat(t.text)
	case "xt":
		return r.xt()
	}
	return r.other(t)
}

// other reads statements that few rules have.
func (r *rule) other(t token) bool {
	switch t.text {
	case "add", "update", "delete":
		r.next()
		return r.update(t)
	case "tproxy":
		r.next()
		return r.tproxy()
	case "notrack":
		r.next()
		r.add(netfilter.CT{NoTrack: true, Text: "notrack"})
		return true
	case "flow":
		if r.words("flow", "add") || r.words("flow", "offload") {
			r.next()
			r.next()
			r.add(netfilter.Note{Name: "flow", Text: r.since(t)})
			return true
		}
	case "dup":
		r.next()
		return r.words("to") && r.skipValue() && r.note(t, "dup") && (!r.words("device") || r.skipValue())
	case "last":
		r.next()
		if r.words("used") {
			r.next()
		}
		r.add(netfilter.Count{})
		return true
	case "ct":
		if done, ok := r.ctStatement(t); done {
			return ok
		}
	case "set":
		return false // "set add ip saddr @x", before nft 0.9
	}
	return r.condition()
}

// note adds a statement that changes nothing that a walk depends on.
func (r *rule) note(t token, name string) bool {
	r.add(netfilter.Note{Name: name, Text: r.since(t)})
	return true
}

// ctStatement reads the statements that begin with ct; done is false when it
// is a condition.
func (r *rule) ctStatement(t token) (done, ok bool) {
	switch {
	case r.words("ct", "count"):
		over := r.words("over")
		r.next()
		r.add(netfilter.Metered{Module: "ct count", Text: r.since(t), WithinBudget: !over})
		return true, true
	case r.words("ct", "helper", "set"), r.words("ct", "timeout", "set"), r.words("ct", "expectation", "set"):
		r.next()
		return true, r.note(t, "ct")
	}
	return false, false
}

// counter reads a counter with or without its numbers, or by its name.
func (r *rule) counter() bool {
	switch {
	case r.words("packets"):
		n, err := strconv.ParseUint(r.next().text, 10, 64)
		if err != nil || !r.words("bytes") {
			return false
		}
		b, err := strconv.ParseUint(r.next().text, 10, 64)
		if err != nil {
			return false
		}
		r.Counters, r.Counted = netfilter.Counters{Packets: n, Bytes: b}, true
		r.add(netfilter.Count{})
	case r.words("name"):
		if t := r.peek(); t.kind == word || t.kind == quoted {
			// A name; a map that gives names is an expression.
			r.next()
			if n := r.peek(); n.kind != end && n.word("map") {
				return false
			}
			r.add(netfilter.Count{Name: t.text})
			return true
		}
		return false
	default:
		r.add(netfilter.Count{})
	}
	return true
}

// metered reads limit and quota, of the rule or by name.
func (r *rule) metered(t token) bool {
	if r.words("name") {
		name := r.next()
		m, ok := r.table.objects[t.text+" "+name.text]
		if !ok {
			m = netfilter.Metered{Module: t.text, Text: t.text + " " + name.text, WithinBudget: true}
		}
		r.add(m)
		return name.kind == word || name.kind == quoted
	}
	from := r.pos
	if t.text == "limit" && !r.words("rate") {
		return false
	}
	_ = r.words("over") || r.words("until")
	if !r.amount() {
		return false
	}
	if r.words("burst") && !r.amount() {
		return false
	}
	if r.words("used") && !r.amount() {
		return false
	}
	m := metered(t.text, text(r.text[from:r.pos]))
	m.Text = r.since(t)
	r.add(m)
	return true
}

// amount reads "10/second", "1 mbytes/minute", "5 packets", "10 mbytes".
func (r *rule) amount() bool {
	t := r.next()
	if t.kind != word || t.text[0] < '0' || t.text[0] > '9' {
		return false
	}
	pos := r.pos
	switch unit := r.next().text; {
	case unit == "packets", unit == "bytes", unit == "kbytes", unit == "mbytes", strings.Contains(unit, "bytes/"):
	default:
		r.pos = pos
	}
	return true
}

// metered makes the meaning of the words of a limit or quota. A quota whose
// use is told is within it or not; everything else is taken to be within.
func metered(what, body string) netfilter.Metered {
	m := netfilter.Metered{Module: what, WithinBudget: true}
	words := strings.Fields(body)
	within := true
	var numbers []uint64
	for i, w := range words {
		if w == "over" {
			m.WithinBudget = false
		}
		if n, err := strconv.ParseUint(w, 10, 64); err == nil && what == "quota" {
			unit := uint64(1)
			if i+1 < len(words) {
				unit = map[string]uint64{"kbytes": 1 << 10, "mbytes": 1 << 20}[words[i+1]]
			}
			numbers = append(numbers, n*max(unit, 1))
		}
	}
	if len(numbers) == 2 && numbers[1] >= numbers[0] {
		within = false
	}
	m.WithinBudget = m.WithinBudget == within
	return m
}

// log reads the options, which do nothing to the packet.
func (r *rule) log(t token) bool {
	for {
		w := r.peek()
		if w.kind != word {
			break
		}
		switch w.text {
		case "prefix", "level", "group", "snaplen", "queue-threshold":
			r.next()
			r.next()
			continue
		case "flags":
			r.next()
			r.next()
			for r.peek().is(",") || r.peek().word("sequence") || r.peek().word("options") {
				r.next()
			}
			continue
		}
		break
	}
	r.add(netfilter.Log{Kind: "log", Text: r.since(t)})
	return true
}

func (r *rule) queue(t token) bool {
	q := netfilter.NFQueue{}
	if r.words("flags") {
		q.Bypass = r.flags()["bypass"]
	}
	if r.words("num") || r.words("to") {
		if !r.skipValue() {
			return false
		}
	}
	if w := r.peek(); w.word("bypass") || w.word("fanout") {
		q.Bypass = r.flags()["bypass"]
	}
	q.Text = r.since(t)
	r.add(q)
	return true
}

// flags reads words with commas between.
func (r *rule) flags() map[string]bool {
	out := map[string]bool{}
	for {
		out[r.next().text] = true
		if !r.peek().is(",") {
			return out
		}
		r.next()
	}
}

// xt reads what iptables-nft's extensions show as.
func (r *rule) xt() bool {
	r.next()
	what, name := r.next(), r.next()
	switch {
	case what.word("match") && name.text == "comment":
		r.add(netfilter.Comment{})
		return true
	case what.word("match"), what.word("target"), what.word("watcher"):
		why := "nft does not show what it says; iptables-nft-save does"
		if what.text == "match" {
			r.add(netfilter.Compare{Left: netfilter.Opaque{Text: "xt match " + name.text + ": " + why}, Right: netfilter.Constant{}, Text: "xt match " + name.text})
			return true
		}
		r.add(netfilter.Unknown{Module: "xt", Text: "xt " + what.text + " " + name.text, Why: why})
		return true
	}
	return false
}
