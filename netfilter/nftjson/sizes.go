package nftjson

import (
	"fmt"
	"slices"
	"strings"
)

// declared is the declaration of a set or map. How long a part of type "integer" is, JSON
// says only where rules look into the set: with raw bytes of the packet. Such a part
// is declared by them.
type declared struct {
	kind, name string
	key        []string
	rest       strings.Builder
}

func (s *declared) write(b *strings.Builder) {
	fmt.Fprintf(b, "\t%s %s {\n\t\ttype %s%s", s.kind, s.name, strings.Join(s.key, " . "), s.rest.String())
}

// learnSizes finds lookups of keys with raw bytes in statements or in what is in them.
func (t *table) learnSizes(v any) {
	if !slices.ContainsFunc(t.sets, func(s *declared) bool { return slices.Contains(s.key, "integer") }) {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			t.learnSizes(x)
		}
	case map[string]any:
		for _, names := range [...][2]string{{"key", "data"}, {"left", "right"}, {"elem", "set"}} {
			if name, is := strings.CutPrefix(str(v, names[1]), "@"); is {
				t.learnKey(name, v[names[0]])
			}
		}
		for _, x := range v {
			t.learnSizes(x)
		}
	}
}

// learnKey takes over from a rule what a part of a key is that its declaration only calls an
// integer.
func (t *table) learnKey(name string, key any) {
	at := slices.IndexFunc(t.sets, func(s *declared) bool { return s.name == name })
	if at < 0 {
		return
	}
	parts := []any{key}
	if m, is := key.(map[string]any); is {
		if list, is := m["concat"].([]any); is {
			parts = list
		}
	}
	for i, part := range parts {
		m, _ := part.(map[string]any)
		raw, is := m["payload"].(map[string]any)
		if is && str(raw, "base") != "" && i < len(t.sets[at].key) && t.sets[at].key[i] == "integer" {
			t.sets[at].key[i] = payload(raw)
		}
	}
}
