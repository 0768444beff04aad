package iptables

import "strings"

// split appends the words of a rule to words, cut as iptables-restore does: quotes keep
// spaces, a backslash keeps the next character.
func split(words []string, rule string) ([]string, bool) {
	for {
		for rule != "" && isSpace(rule[0]) {
			rule = rule[1:]
		}
		if rule == "" {
			return words, true
		}
		var word string
		var closed bool
		if word, rule, closed = firstWord(rule); !closed {
			return words, false
		}
		words = append(words, word)
	}
}

// firstWord cuts a word from a text that begins with one. It is a part of the text
// wherever that is possible: there are many rules. Without its last quote it is not
// closed.
func firstWord(text string) (word, rest string, closed bool) {
	for i := 0; i < len(text) && text[i] != '"'; i++ {
		if isSpace(text[i]) {
			return text[:i], text[i:], true
		}
	}
	word, rest, closed = strings.Cut(text[1:], `"`)
	switch {
	case text[0] == '"' && closed && strings.IndexByte(word, '\\') < 0 && (rest == "" || isSpace(rest[0])):
		return word, rest, true
	case strings.IndexByte(text, '"') < 0:
		return text, "", true
	}
	return joinedWord(text)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// joinedWord is firstWord where the word is put together from parts.
func joinedWord(text string) (word, rest string, closed bool) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case c == '"':
			quoted = !quoted
		case isSpace(c) && !quoted:
			return b.String(), text[i:], true
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), "", !quoted
}
