package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// strangeFields lists the fields of a document that its type does not have, and
// those that are there twice, each with its line.
func strangeFields(raw []byte, into any) []string {
	var doc yaml.Node
	if yaml.Unmarshal(raw, &doc) != nil || len(doc.Content) == 0 {
		return nil // decoding tells what is wrong
	}
	var w fieldWalk
	w.node(doc.Content[0], reflect.TypeOf(into).Elem(), "")
	return w.found
}

type fieldWalk struct {
	found []string
	depth int
}

// maxDepth is deeper than any field; YAML aliases may form a circle.
const maxDepth = 20

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
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return
	}
	switch {
	case n.Kind == yaml.MappingNode && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map):
		w.mapping(n, t, path)
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, item := range n.Content {
			w.node(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

func (w *fieldWalk) mapping(n *yaml.Node, t reflect.Type, path string) {
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		full := strings.TrimPrefix(path+"."+name, ".")
		if line, twice := lines[name]; twice {
			w.found = append(w.found, fmt.Sprintf("line %d: field %s is there already, on line %d; the last one counts", key.Line, full, line))
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
			w.found = append(w.found, fmt.Sprintf("line %d: field %s is not known and changes nothing", key.Line, full))
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
