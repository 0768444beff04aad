package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// strangeFields lists the fields of a document that its type does not have, and
// those that are there twice, each with its line.
func strangeFields(raw []byte, into any) []string { return walk(raw, into, "").strange }

// unfitFields lists the fields of a document whose values their types do not take,
// each with its line and, as kube-proxy has it, behind the kind of the document.
func unfitFields(raw []byte, into any, kind string) []string { return walk(raw, into, kind).unfit }

func walk(raw []byte, into any, kind string) fieldWalk {
	var doc yaml.Node
	if yaml.Unmarshal(raw, &doc) != nil || len(doc.Content) == 0 {
		return fieldWalk{} // decoding tells what is wrong
	}
	w := fieldWalk{kind: kind}
	w.node(doc.Content[0], reflect.TypeOf(into).Elem(), "")
	return w
}

// fieldWalk goes through one document and gathers what is wrong with its fields.
type fieldWalk struct {
	kind           string
	strange, unfit []string
	depth          int
}

// maxDepth is deeper than any field; YAML aliases may form a circle.
const maxDepth = 20

// node goes down a document and the type that it is for side by side.
func (w *fieldWalk) node(n *yaml.Node, t reflect.Type, path string) {
	if w.depth++; w.depth > maxDepth {
		return
	}
	defer func() { w.depth-- }()
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch ownText := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()); {
	case ownText:
		w.value(n, t, path)
	case n.Kind == yaml.MappingNode && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map):
		w.mapping(n, t, path)
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, item := range n.Content {
			w.node(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		w.value(n, t, path)
	}
}

// value tries what has no fields of its own.
func (w *fieldWalk) value(n *yaml.Node, t reflect.Type, path string) {
	is := map[yaml.Kind]string{yaml.MappingNode: "a group of fields", yaml.SequenceNode: "a list"}[n.Kind]
	if n.Kind == yaml.ScalarNode {
		is = n.Value
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			is = strconv.Quote(n.Value)
		}
		text, err := sigsyaml.YAMLToJSON([]byte(is))
		if err != nil || sigsjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(t).Interface()) == nil {
			return
		}
	}
	w.unfit = append(w.unfit, fmt.Sprintf("line %d: %s.%s: %s is not %s", n.Line, w.kind, path, is, wanted(t)))
}

// wanted says in words what a type takes.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		return "a duration, as text such as 30s or 1h"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "text in quotes"
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() == reflect.Struct || t.Kind() == reflect.Map:
		return "a group of fields"
	case t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64:
		return "a number"
	}
	return fmt.Sprintf("a whole number of %d bits", t.Bits())
}

// mapping goes through the fields of a group, with the type of each.
func (w *fieldWalk) mapping(n *yaml.Node, t reflect.Type, path string) {
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		full := strings.TrimPrefix(path+"."+name, ".")
		if line, twice := lines[name]; twice {
			w.strange = append(w.strange, fmt.Sprintf("line %d: field %s is there already, on line %d; the last one counts", key.Line, full, line))
		}
		lines[name] = key.Line
		inner, known := t, true
		if t.Kind() == reflect.Map {
			inner = t.Elem()
		} else {
			inner, known = fieldOf(t, name)
		}
		switch {
		case key.Tag == "!!merge":
		case !known:
			w.strange = append(w.strange, fmt.Sprintf("line %d: field %s is not known and changes nothing", key.Line, full))
		default:
			w.node(value, inner, full)
		}
	}
}

// fieldOf returns the type of the field that JSON calls name.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			if inner, known := fieldOf(f.Type, name); known {
				return inner, true
			}
		} else if tag == name && name != "" {
			return f.Type, true
		}
	}
	return nil, false
}
