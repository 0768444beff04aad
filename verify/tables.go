package verify

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"portolan/dataplane"
	"portolan/netfilter"
)

// TableDiff is what would make a native table hold what another one, want, holds. Both
// are compared by what they mean, not by how they are written, so that a listing of any
// version of nft can be held against a script. have is nil where there is no table.
func TableDiff(want, have *netfilter.Table) dataplane.Plan {
	wanted := contentOf(want)
	there := map[string]content{}
	if have != nil {
		for _, c := range contentOf(have) {
			there[c.name] = c
		}
	}
	var p dataplane.Plan
	for _, w := range wanted {
		h, exists := there[w.name]
		delete(there, w.name)
		if c := w.change(h, exists); !exists || len(c.Created)+len(c.Deleted) > 0 {
			p.Changes = append(p.Changes, c)
		}
	}
	for _, name := range sortedKeys(there) {
		p.Changes = append(p.Changes, dataplane.Change{Container: name, Exists: true, Remove: true, Deleted: there[name].objects(nil)})
	}
	return p
}

func sortedKeys(m map[string]content) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// content is what a set, a map or a chain holds, the name as the plan has it: "set/...",
// "chain/...".
type content struct {
	name    string
	ordered bool
	parts   []part
}

// part is an element, a rule, or what the whole was declared as.
type part struct{ text, meaning string }

// contentOf lists the sets, maps and chains of a table.
func contentOf(t *netfilter.Table) (out []content) {
	for _, s := range t.Sets {
		c := content{name: "set/" + s.Name}
		kind := "set " + partNames(s.Key)
		if s.IsMap() {
			kind = "map " + partNames(s.Key) + " : " + partNames(s.Data)
		}
		c.parts = append(c.parts, part{kind, kind})
		for i := range s.Elements {
			if s.Dynamic {
				break // what packets put there is nobody's wish
			}
			text := elementText(s, &s.Elements[i])
			c.parts = append(c.parts, part{text, text})
		}
		out = append(out, c)
	}
	for _, chain := range t.Chains() {
		c := content{name: "chain/" + chain.Name, ordered: true}
		if chain.Hook != netfilter.NoHook {
			types := [...]string{netfilter.FilterChain: "filter", netfilter.NATChain: "nat", netfilter.RouteChain: "route"}
			head := fmt.Sprintf("type %s hook %s priority %d; policy %s;", types[chain.Type], chain.Hook, chain.Priority, strings.ToLower(chain.Policy.String()))
			c.parts = append(c.parts, part{head, head})
		}
		for i := range chain.Rules {
			r := &chain.Rules[i]
			c.parts = append(c.parts, part{r.Text, meaningOf(reflect.ValueOf(r.Statements))})
		}
		out = append(out, c)
	}
	return out
}

// partNames is a concatenation of types, as nft lists them.
func partNames(parts []netfilter.Part) string {
	var out []string
	for _, p := range parts {
		name := p.Type.String()
		if p.Type == netfilter.IntegerType || p.Type == netfilter.OpaqueType {
			name = fmt.Sprintf("integer(%d)", p.Bytes)
		}
		out = append(out, name)
	}
	return strings.Join(out, " . ")
}

// elementText is an element in a form of its own, the same for the same meaning.
func elementText(s *netfilter.NFTSet, e *netfilter.Element) string {
	text := netfilter.Format(s.Key, e.First)
	switch {
	case e.Any:
		text = "*"
	case e.Last != e.First:
		text += "-" + netfilter.Format(s.Key, e.Last)
	}
	switch {
	case s.IsVerdictMap():
		text += " : " + meaningOf(reflect.ValueOf(e.Verdict))
	case s.IsMap():
		text += " : " + netfilter.Format(s.Data, e.Data)
		if e.DataLast != e.Data {
			text += "-" + netfilter.Format(s.Data, e.DataLast)
		}
	}
	return text
}

// change is what makes of what is there what is wanted.
func (w content) change(have content, exists bool) dataplane.Change {
	c := dataplane.Change{Container: w.name, Exists: exists, Keyed: !w.ordered}
	count := func(list []part) map[string]int {
		out := map[string]int{}
		for _, p := range list {
			out[p.meaning]++
		}
		return out
	}
	c.Created, c.Deleted = w.objects(count(have.parts)), have.objects(count(w.parts))
	if w.ordered && len(c.Created)+len(c.Deleted) == 0 {
		for i := range w.parts { // the same, in another order
			if w.parts[i].meaning != have.parts[i].meaning {
				c.Created, c.Deleted = append(c.Created, w.object(w.parts[i])), append(c.Deleted, have.object(have.parts[i]))
			}
		}
	}
	return c
}

// objects are the parts beyond those that are counted.
func (w content) objects(counted map[string]int) (out []dataplane.Object) {
	for _, p := range w.parts {
		if counted[p.meaning] > 0 {
			counted[p.meaning]--
			continue
		}
		out = append(out, w.object(p))
	}
	return out
}

func (w content) object(p part) dataplane.Object {
	return dataplane.Object{Key: dataplane.Key{Container: w.name, Name: p.text}, Body: p.text}
}

// meaningOf writes a value of the model down without what depends on who wrote it: the
// text, and what was counted. A set with a name is that name.
func meaningOf(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return "nil"
		}
		if s, ok := v.Interface().(*netfilter.NFTSet); ok && s.Name != "" {
			return "@" + s.Name
		}
		return meaningOf(v.Elem())
	case reflect.Slice:
		var out []string
		for i := range v.Len() {
			out = append(out, meaningOf(v.Index(i)))
		}
		return "[" + strings.Join(out, " ") + "]"
	case reflect.Struct:
		t := v.Type()
		out := []string{strings.ToLower(t.Name())}
		for i := range v.NumField() {
			if f := t.Field(i); f.IsExported() && f.Name != "Text" && f.Type != reflect.TypeFor[netfilter.Counters]() {
				out = append(out, meaningOf(v.Field(i)))
			}
		}
		return strings.Join(out, " ")
	}
	return fmt.Sprint(v.Interface())
}
