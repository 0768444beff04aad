package nftjson_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"portolan/netfilter"
)

// meaning writes a table so that equal meanings are equal texts: without the
// words of rules and sets by name.
func meaning(t *netfilter.Table) string {
	var b strings.Builder
	fmt.Fprintln(&b, t.Name, t.Family, t.Variant)
	for _, s := range t.Sets {
		fmt.Fprintln(&b, "set", s.Name, s.Key, s.Data, s.Dynamic, s.Doubt)
		for i := range s.Elements {
			write(&b, reflect.ValueOf(s.Elements[i]))
			b.WriteString("\n")
		}
	}
	for _, c := range t.Chains() {
		fmt.Fprintln(&b, "chain", c.Name, c.Hook, c.Type, c.Priority, c.Policy)
		for i := range c.Rules {
			for _, s := range c.Rules[i].Statements {
				b.WriteString("  ")
				write(&b, reflect.ValueOf(s))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func write(b *strings.Builder, v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		write(b, v.Elem())
	case reflect.Pointer:
		s, is := v.Interface().(*netfilter.NFTSet)
		switch {
		case !is || s == nil:
			b.WriteString("nil")
		case s.Name != "":
			b.WriteString("@" + s.Name)
		default:
			fmt.Fprint(b, s.Key, s.Data, s.Doubt)
			for i := range s.Elements {
				write(b, reflect.ValueOf(s.Elements[i]))
			}
		}
	case reflect.Struct:
		fmt.Fprint(b, v.Type().Name(), "{")
		for i := range v.NumField() {
			switch v.Type().Field(i).Name {
			case "Text", "Expires":
			default:
				write(b, v.Field(i))
				b.WriteString(" ")
			}
		}
		b.WriteString("}")
	case reflect.Slice:
		for i := range v.Len() {
			write(b, v.Index(i))
		}
	default:
		fmt.Fprintf(b, "%q", fmt.Sprint(v.Interface()))
	}
}

// sorted orders sets and their elements, which scripts give in another order.
func sorted(t *netfilter.Table) *netfilter.Table {
	slices.SortFunc(t.Sets, func(a, b *netfilter.NFTSet) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range t.Sets {
		slices.SortFunc(s.Elements, func(a, b netfilter.Element) int { return strings.Compare(a.First, b.First) })
	}
	slices.SortFunc(t.Chains(), func(a, b *netfilter.Chain) int { return strings.Compare(a.Name, b.Name) })
	return t
}
