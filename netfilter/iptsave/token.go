package iptsave

import "strings"

// scanner cuts a line into words as iptables-restore does: blanks separate,
// double or single quotes hold blanks, a backslash inside double quotes takes
// the next character as it is. Words without escapes are parts of the line.
type scanner struct {
	line string
	pos  int
}

func (s *scanner) skip() {
	for s.pos < len(s.line) && (s.line[s.pos] == ' ' || s.line[s.pos] == '\t') {
		s.pos++
	}
}

// next gives the next word; ok is false at the end of the line.
func (s *scanner) next() (word string, ok bool) {
	s.skip()
	if s.pos >= len(s.line) {
		return "", false
	}
	start := s.pos
	for s.pos < len(s.line) {
		switch s.line[s.pos] {
		case ' ', '\t':
			return s.line[start:s.pos], true
		case '"', '\'', '\\':
			return s.quoted(start), true
		}
		s.pos++
	}
	return s.line[start:], true
}

// quoted reads a word that has quotes or escapes; s.pos is at the first one.
func (s *scanner) quoted(start int) string {
	if q := s.line[s.pos]; s.pos == start && q != '\\' {
		// The common case: one quoted string without escapes.
		end := strings.IndexByte(s.line[start+1:], q)
		if end >= 0 && !strings.Contains(s.line[start+1:start+1+end], `\`) {
			after := start + end + 2
			if after == len(s.line) || s.line[after] == ' ' || s.line[after] == '\t' {
				s.pos = after
				return s.line[start+1 : after-1]
			}
		}
	}
	var b strings.Builder
	b.WriteString(s.line[start:s.pos])
	var quote byte
	for ; s.pos < len(s.line); s.pos++ {
		c := s.line[s.pos]
		switch {
		case c == '\\' && quote != '\'' && s.pos+1 < len(s.line):
			s.pos++
			b.WriteByte(s.line[s.pos])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && (c == ' ' || c == '\t'):
			return b.String()
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// peek gives the next word without taking it.
func (s *scanner) peek() (string, bool) {
	at := s.pos
	w, ok := s.next()
	s.pos = at
	return w, ok
}

// rest is what has not been read, trimmed.
func (s *scanner) rest() string { return strings.TrimSpace(s.line[s.pos:]) }
