package iptables

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSplit: whatever way a word is found, it is the one that reading byte by byte gives.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.StringMatching(`[a" \\\t]{0,14}`).Draw(t, "rule")
		want, closed := splitByByte(rule)
		got, ok := split(nil, rule)
		if ok != closed || ok && !slices.Equal(got, want) {
			t.Fatalf("%q: %q, %v, not %q, %v", rule, got, ok, want, closed)
		}
	})
}

func splitByByte(rule string) (words []string, closed bool) {
	var word strings.Builder
	quoted, started := false, false
	for i := 0; i < len(rule); i++ {
		switch c := rule[i]; {
		case c == '\\' && quoted && i+1 < len(rule):
			i++
			word.WriteByte(rule[i])
		case c == '"':
			quoted, started = !quoted, true
		case isSpace(c) && !quoted:
			if started {
				words = append(words, word.String())
				word.Reset()
				started = false
			}
		default:
			word.WriteByte(c)
			started = true
		}
	}
	if started {
		words = append(words, word.String())
	}
	return words, !quoted
}
