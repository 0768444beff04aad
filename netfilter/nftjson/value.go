package nftjson

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// quote writes a text in quotes. nft has no way to write a quote within.
func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, "'") + `"` }

// raw writes what has no form in nft's words.
func raw(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "json"
	}
	return "json " + quote(string(b))
}

// one takes the only entry of an object apart.
func one(v any) (key string, value any, ok bool) {
	m, is := v.(map[string]any)
	if !is || len(m) != 1 {
		return "", nil, false
	}
	for k, x := range m {
		key, value = k, x
	}
	return key, value, true
}

// str is a field that is a word or number, "" otherwise.
func str(m map[string]any, key string) string {
	switch v := m[key].(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

// plain are the bytes of words that need no quotes.
func plain(s string) bool {
	for _, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_./:*-@", c)) {
			return false
		}
	}
	return s != ""
}

// value writes a value: a word, a number, a range, a field, a set.
func value(b *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		if plain(v) {
			b.WriteString(v)
		} else {
			b.WriteString(quote(v))
		}
	case json.Number:
		b.WriteString(v.String())
	case bool:
		b.WriteString(map[bool]string{true: "exists", false: "missing"}[v])
	case []any:
		join(b, v, ",")
	case map[string]any:
		object1(b, v)
	default:
		b.WriteString(raw(v))
	}
}

func text(v any) string {
	var b strings.Builder
	value(&b, v)
	return b.String()
}

func join(b *strings.Builder, vs []any, sep string) {
	for i, x := range vs {
		if i > 0 {
			b.WriteString(sep)
		}
		value(b, x)
	}
}

// operators in the order in which they bind, tight ones first.
var operators = []string{">>", "<<", "&", "^", "|"}

// object1 writes a value that is an object.
func object1(b *strings.Builder, m map[string]any) {
	key, v, ok := one(m)
	args, _ := v.([]any)
	inner, _ := v.(map[string]any)
	switch {
	case !ok:
		b.WriteString(raw(m))
	case key == "prefix":
		value(b, inner["addr"])
		b.WriteString("/" + str(inner, "len"))
	case key == "range" && len(args) == 2:
		span(b, args)
	case key == "concat":
		join(b, args, " . ")
	case key == "set":
		set(b, v)
	case slices.Contains(operators, key) && len(args) >= 2:
		bits(b, key, args)
	case key == "map":
		value(b, inner["key"])
		b.WriteString(" map ")
		value(b, inner["data"])
	case key == "elem":
		element(b, m)
	default:
		b.WriteString(field(key, v, inner))
	}
}

// span writes a range; words in quotes need them.
func span(b *strings.Builder, args []any) {
	value(b, args[0])
	b.WriteString("-")
	value(b, args[1])
}

// bits writes an operation of bits; what binds less tight gets brackets.
func bits(b *strings.Builder, op string, args []any) {
	for i, x := range args {
		if i > 0 {
			b.WriteString(" " + op + " ")
		}
		if flags, is := x.([]any); is {
			b.WriteString("(")
			join(b, flags, " | ")
			b.WriteString(")")
			continue
		}
		if k, _, ok := one(x); ok && slices.Contains(operators, k) && (i > 0 || slices.Index(operators, k) > slices.Index(operators, op)) {
			b.WriteString("(")
			value(b, x)
			b.WriteString(")")
			continue
		}
		value(b, x)
	}
}

// set writes the elements of a set or map within a rule.
func set(b *strings.Builder, v any) {
	elems, is := v.([]any)
	if !is {
		value(b, v)
		return
	}
	b.WriteString("{ ")
	for i, e := range elems {
		if i > 0 {
			b.WriteString(", ")
		}
		element(b, e)
	}
	b.WriteString(" }")
}

// element writes an element: a key, or a pair of key and data.
func element(b *strings.Builder, v any) {
	if pair, is := v.([]any); is && len(pair) == 2 {
		element(b, pair[0])
		b.WriteString(" : ")
		if !verdict(b, pair[1]) {
			value(b, pair[1])
		}
		return
	}
	m, is := v.(map[string]any)
	inner, isElem := m["elem"].(map[string]any)
	if !is || !isElem {
		value(b, v)
		return
	}
	value(b, inner["val"])
	for _, key := range []string{"timeout", "expires"} {
		if s := str(inner, key); s != "" {
			b.WriteString(" " + key + " " + s + "s")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(inner)) {
		switch key {
		case "counter", "limit", "quota":
			b.WriteString(" " + statement(map[string]any{key: inner[key]}))
		}
	}
	if c := str(inner, "comment"); c != "" {
		b.WriteString(" comment " + quote(c))
	}
}

// verdict writes accept, drop, jump and the like; false for other values.
func verdict(b *strings.Builder, v any) bool {
	key, x, ok := one(v)
	switch {
	case !ok:
		return false
	case key == "accept", key == "drop", key == "continue", key == "return":
		b.WriteString(key)
		return true
	case key == "jump", key == "goto":
		m, _ := x.(map[string]any)
		b.WriteString(key + " " + str(m, "target"))
		return true
	}
	return false
}

// fieldForms are the fields whose parts stand one after the other.
var fieldForms = map[string][]string{
	"tcp option": {"name", "field"}, "ip option": {"name", "field"}, "sctp chunk": {"name", "field"}, "dccp option": {"type"}, "socket": {"key"}, "osf": {"ttl", "key"}, "rt": {"family", "key"},
}

// field writes a field of the packet or another source of values.
func field(key string, v any, m map[string]any) string {
	if m == nil {
		return raw(map[string]any{key: v})
	}
	switch key {
	case "payload":
		return payload(m)
	case "meta":
		k := str(m, "key")
		switch k {
		case "iifname", "oifname", "iif", "oif", "iifgroup", "oifgroup", "iiftype", "oiftype", "ibrname", "obrname":
			return k
		}
		return "meta " + k
	case "ct":
		return strings.Join(strings.Fields("ct "+str(m, "dir")+" "+ctFamily(m)+str(m, "key")), " ")
	case "numgen":
		return "numgen " + str(m, "mode") + " mod " + str(m, "mod") + offset(m)
	case "jhash":
		seed := ""
		if s := str(m, "seed"); s != "" {
			seed = " seed " + s
		}
		return "jhash " + text(m["expr"]) + " mod " + str(m, "mod") + seed + offset(m)
	case "symhash":
		return "symhash mod " + str(m, "mod") + offset(m)
	case "fib":
		return "fib " + strings.Join(list(m["flags"]), " . ") + " " + str(m, "result")
	case "exthdr":
		if f := str(m, "field"); f != "" {
			return str(m, "name") + " " + f
		}
		return "exthdr " + str(m, "name")
	}
	parts, ok := fieldForms[key]
	if !ok {
		return raw(map[string]any{key: v})
	}
	words := []string{key}
	for _, p := range parts {
		if s := str(m, p); s != "" {
			words = append(words, s)
		}
	}
	return strings.Join(words, " ")
}

// ctFamily is the family that stands before an address.
func ctFamily(m map[string]any) string {
	switch k := str(m, "key"); {
	case str(m, "family") != "":
		return str(m, "family") + " "
	case strings.HasPrefix(k, "ip "), strings.HasPrefix(k, "ip6 "):
		return ""
	}
	return ""
}

func offset(m map[string]any) string {
	if s := str(m, "offset"); s != "" && s != "0" {
		return " offset " + s
	}
	return ""
}

func payload(m map[string]any) string {
	if base := str(m, "base"); base != "" {
		return fmt.Sprintf("@%s,%s,%s", base, str(m, "offset"), str(m, "len"))
	}
	return str(m, "protocol") + " " + str(m, "field")
}
