package nftjson

import (
	"strings"
)

// rule writes a rule.
func rule(o object) string {
	var words []string
	for _, s := range o.Expr {
		words = append(words, statement(s))
	}
	if o.Comment != "" {
		words = append(words, "comment "+quote(o.Comment))
	}
	return strings.Join(words, " ")
}

// statement writes one statement.
func statement(v any) string {
	if words, is := v.(string); is {
		return words // nft 1.0.6 writes what it has no JSON for as its own text
	}
	key, x, ok := one(v)
	if !ok {
		return raw(v)
	}
	var b strings.Builder
	if verdict(&b, v) {
		return b.String()
	}
	m, _ := x.(map[string]any)
	name, _ := x.(string)
	switch key {
	case "match":
		return match(m)
	case "vmap":
		return text(m["key"]) + " vmap " + text(m["data"])
	case "mangle":
		return text(m["key"]) + " set " + text(m["value"])
	case "counter", "limit", "quota", "ct count":
		return metered(key, name, m)
	case "log":
		return log(m)
	case "reject":
		return reject(m)
	case "snat", "dnat", "masquerade", "redirect", "tproxy":
		return nat(key, m)
	case "notrack":
		return key
	case "set", "map":
		return update(m)
	case "queue":
		return queue(m)
	case "xt":
		return "xt " + str(m, "type") + " " + str(m, "name")
	case "flow":
		return "flow add " + str(m, "flowtable")
	case "dup":
		return "dup to " + text(m["addr"])
	case "ct helper", "ct timeout", "ct expectation":
		return key + " set " + quote(name)
	}
	return raw(v)
}

// match writes a comparison. "in" is what stands without a sign: the flags
// are tested one by one; "==" is left away unless it is about flags.
func match(m map[string]any) string {
	op := str(m, "op")
	left, right := m["left"], m["right"]
	sign := " " + op + " "
	switch op {
	case "in":
		sign = " "
	case "==":
		if k, inner, ok := one(left); !ok || !isFlags(k, inner) || isSet(right) {
			sign = " "
			if _, _, bits := one(left); bits && isBits(k) {
				sign = " == "
			}
		}
	}
	return text(left) + sign + text(right)
}

func isSet(v any) bool {
	k, _, ok := one(v)
	s, _ := v.(string)
	return ok && k == "set" || strings.HasPrefix(s, "@")
}

func isBits(op string) bool {
	switch op {
	case "&", "|", "^", "<<", ">>":
		return true
	}
	return false
}

// isFlags tells fields of flags, where no sign means something else than "==".
func isFlags(key string, v any) bool {
	m, _ := v.(map[string]any)
	switch key {
	case "ct":
		return str(m, "key") == "state" || str(m, "key") == "status"
	case "payload":
		return str(m, "protocol") == "tcp" && str(m, "field") == "flags"
	}
	return false
}

// metered writes what counts.
func metered(key, name string, m map[string]any) string {
	if name != "" {
		return key + " name " + quote(name)
	}
	over := map[bool]string{true: "over "}[m["inv"] == true]
	switch key {
	case "counter":
		if p := str(m, "packets"); p != "" {
			return "counter packets " + p + " bytes " + str(m, "bytes")
		}
		return "counter"
	case "limit":
		unit := str(m, "rate_unit")
		if unit == "" || unit == "packets" {
			return "limit rate " + over + str(m, "rate") + "/" + str(m, "per")
		}
		return "limit rate " + over + str(m, "rate") + " " + unit + "/" + str(m, "per")
	case "quota":
		s := "quota " + over + str(m, "val") + " " + str(m, "val_unit")
		if u := str(m, "used"); u != "" {
			s += " used " + u + " " + str(m, "used_unit")
		}
		return s
	}
	return "ct count " + over + str(m, "val")
}

// log words the statement as nft does.
func log(m map[string]any) string {
	s := "log"
	if p := str(m, "prefix"); p != "" {
		s += " prefix " + quote(p)
	}
	for _, k := range []string{"group", "snaplen", "queue-threshold", "level"} {
		if v := str(m, k); v != "" {
			s += " " + k + " " + v
		}
	}
	if f := list(m["flags"]); len(f) > 0 {
		s += " flags " + strings.Join(f, ",")
	}
	return s
}

func reject(m map[string]any) string {
	switch kind := str(m, "type"); {
	case kind == "tcp reset":
		return "reject with tcp reset"
	case kind == "icmpx" && str(m, "expr") == "port-unreachable", kind == "":
		return "reject"
	default:
		return "reject with " + kind + " " + text(m["expr"])
	}
}

// nat words dnat, snat, masquerade and redirect as nft does.
func nat(key string, m map[string]any) string {
	s := key
	if f := str(m, "family"); f != "" {
		s += " " + f
	}
	if f := list(m["type_flags"]); len(f) > 0 {
		s += " " + strings.Join(f, " ")
	}
	addr, hasAddr := m["addr"]
	port, hasPort := m["port"]
	if hasAddr || hasPort {
		s += " to "
	}
	if hasAddr {
		s += natAddr(addr, hasPort)
	}
	if hasPort {
		s += ":" + text(port)
	}
	var flags []string
	for _, f := range list(m["flags"]) {
		if f != "netmap" {
			flags = append(flags, f)
		}
	}
	if len(flags) > 0 {
		s += " " + strings.Join(flags, ",")
	}
	return s
}

// natAddr writes an address; those of IPv6 stand in brackets before a port.
func natAddr(v any, port bool) string {
	if a, is := v.(string); is && port && strings.Contains(a, ":") {
		return "[" + a + "]"
	}
	k, x, ok := one(v)
	if args, is := x.([]any); ok && is && k == "range" && len(args) == 2 && port {
		if a := text(args[0]); strings.Contains(a, ":") {
			return "[" + a + "]-[" + text(args[1]) + "]"
		}
	}
	return text(v)
}

// update writes a change of a set by a rule.
func update(m map[string]any) string {
	set := str(m, "set")
	if set == "" {
		set = str(m, "map")
	}
	var b strings.Builder
	b.WriteString(str(m, "op") + " " + set + " { ")
	element(&b, m["elem"])
	if stmts, is := m["stmt"].([]any); is {
		for _, s := range stmts {
			b.WriteString(" " + statement(s))
		}
	}
	if d, has := m["data"]; has {
		b.WriteString(" : ")
		value(&b, d)
	}
	b.WriteString(" }")
	return b.String()
}

func queue(m map[string]any) string {
	s := "queue"
	if f := list(m["flags"]); len(f) > 0 {
		s += " flags " + strings.Join(f, ",")
	}
	if n, has := m["num"]; has {
		s += " to " + text(n)
	}
	return s
}
