// Package nftjson reads what `nft -j list ruleset` prints (seen with nft
// 1.0.6). It writes each object in nft's own words and lets nfttext read
// these, so that both forms mean the same and rules have a text to show.
package nftjson

import (
	"encoding/json"
	"fmt"
	"strings"

	"portolan/netfilter/nfttext"
)

// Parse reads a ruleset. name is the text's name in errors and in the tables.
func Parse(name, text string) (nfttext.Dump, error) {
	words, err := Text(name, text)
	if err != nil {
		return nfttext.Dump{}, err
	}
	return nfttext.Parse(name, words)
}

// Text gives a ruleset in the form of `nft list ruleset`. Statements without a
// form there are written as "json" with what they are, which nobody
// understands.
func Text(name, text string) (string, error) {
	var top struct {
		NFTables []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(text), &top); err != nil {
		return "", fmt.Errorf("nftjson: %s: %w", name, err)
	}
	if top.NFTables == nil {
		return "", fmt.Errorf("nftjson: %s: there is no list \"nftables\"", name)
	}
	w := &writer{tables: map[string]*table{}}
	for _, entry := range top.NFTables {
		for kind, raw := range entry {
			if err := w.entry(kind, raw); err != nil {
				return "", fmt.Errorf("nftjson: %s: a %s: %w", name, kind, err)
			}
		}
	}
	return w.text(), nil
}

// object has the fields that objects of several kinds share.
type object struct {
	Family, Table, Name, Chain string
	Comment                    string
	Flags                      any
	// chains
	Type    any
	Hook    string
	Prio    *int
	Dev     any
	Policy  string
	Expr    []any
	Map     any
	Elem    json.RawMessage
	Timeout json.Number
	// named counters, limits, quotas
	Bytes, Used, Rate, Burst json.Number
	Per                      string
	Inv                      bool
	Unit                     string `json:"rate_unit"`
}

// table gathers what is in a table: sets come before chains in the text.
type table struct {
	title, flags, objects strings.Builder
	chains                []*chain
	named                 map[string]*chain
	sets                  []*declared
}

type chain struct{ name, text strings.Builder }

type writer struct {
	tables map[string]*table
	order  []*table
}

func (w *writer) table(family, name string) *table {
	key := family + " " + name
	t := w.tables[key]
	if t == nil {
		t = &table{named: map[string]*chain{}}
		t.title.WriteString(key)
		w.tables[key] = t
		w.order = append(w.order, t)
	}
	return t
}

func (t *table) chain(name string) *chain {
	c := t.named[name]
	if c == nil {
		c = &chain{}
		c.name.WriteString(name)
		t.named[name] = c
		t.chains = append(t.chains, c)
	}
	return c
}

// entry writes one object. A command ("add": {...}) is what it adds.
func (w *writer) entry(kind string, raw json.RawMessage) error {
	switch kind {
	case "metainfo":
		return nil
	case "add", "create":
		var inner map[string]json.RawMessage
		if err := json.Unmarshal(raw, &inner); err != nil {
			return err
		}
		for k, v := range inner {
			return w.entry(k, v)
		}
		return nil
	case "table", "chain", "rule", "set", "map", "meter", "element", "counter", "limit", "quota", "flowtable", "ct helper", "ct timeout", "ct expectation", "secmark", "synproxy":
	default:
		return fmt.Errorf("objects and commands of this kind are not read")
	}
	var o object
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return err
	}
	if kind == "table" {
		t := w.table(o.Family, o.Name)
		if flags := list(o.Flags); len(flags) > 0 {
			t.flags.WriteString("\tflags " + strings.Join(flags, ",") + "\n")
		}
		return nil
	}
	t := w.table(o.Family, o.Table)
	switch kind {
	case "chain":
		t.chain(o.Name).begin(o)
	case "rule":
		c := t.chain(o.Chain)
		t.learnSizes(o.Expr)
		c.text.WriteString("\t\t" + rule(o) + "\n")
	case "set", "map", "meter":
		t.set(map[bool]string{false: "set", true: "map"}[kind == "map"], o)
	case "element":
		t.set("# more elements\n\tset", o)
	default:
		t.object(kind, o)
	}
	return nil
}

// begin writes what a base chain is.
func (c *chain) begin(o object) {
	if o.Hook == "" {
		return
	}
	prio := 0
	if o.Prio != nil {
		prio = *o.Prio
	}
	dev := ""
	if o.Dev != nil {
		dev = " device \"" + strings.Join(list(o.Dev), "\" \"") + "\""
	}
	typ, _ := o.Type.(string)
	fmt.Fprintf(&c.text, "\t\ttype %s hook %s%s priority %d;", typ, o.Hook, dev, prio)
	if o.Policy != "" {
		c.text.WriteString(" policy " + o.Policy + ";")
	}
	c.text.WriteString("\n")
}

// list reads a word or a list of words.
func list(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, x := range v {
			out = append(out, list(x)...)
		}
		return out
	}
	return nil
}

// set reads the declaration of a set or map with its elements.
func (t *table) set(kind string, o object) {
	s := &declared{kind: kind, name: o.Name, key: list(o.Type)}
	t.sets = append(t.sets, s)
	b := &s.rest
	if o.Map != nil {
		b.WriteString(" : " + strings.Join(list(o.Map), " . "))
	}
	b.WriteString("\n")
	if f := list(o.Flags); len(f) > 0 {
		b.WriteString("\t\tflags " + strings.Join(f, ",") + "\n")
	}
	if o.Timeout != "" {
		b.WriteString("\t\ttimeout " + o.Timeout.String() + "s\n")
	}
	if o.Comment != "" {
		b.WriteString("\t\tcomment " + quote(o.Comment) + "\n")
	}
	if len(o.Elem) > 0 {
		b.WriteString("\t\telements = { ")
		elements(b, o.Elem)
		b.WriteString(" }\n")
	}
	b.WriteString("\t}\n\n")
}

// object writes a named limit, quota or something else.
func (t *table) object(kind string, o object) {
	over := map[bool]string{true: "over "}[o.Inv]
	body := ""
	switch kind {
	case "limit":
		body = "rate " + over + o.Rate.String() + "/" + o.Per
		if o.Unit != "" && o.Unit != "packets" {
			body = "rate " + over + o.Rate.String() + " " + o.Unit + "/" + o.Per
		}
	case "quota":
		body = over + o.Bytes.String() + " bytes"
		if o.Used != "" {
			body += " used " + o.Used.String() + " bytes"
		}
	}
	if kind == "flowtable" && o.Name == "" {
		return
	}
	fmt.Fprintf(&t.objects, "\t%s %s {\n\t\t%s\n\t}\n\n", kind, o.Name, body)
}

// text writes all tables.
func (w *writer) text() string {
	var b strings.Builder
	for _, t := range w.order {
		b.WriteString("table " + t.title.String() + " {\n" + t.flags.String())
		for _, s := range t.sets {
			s.write(&b)
		}
		b.WriteString(t.objects.String())
		for _, c := range t.chains {
			b.WriteString("\tchain " + c.name.String() + " {\n" + c.text.String() + "\t}\n\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}
