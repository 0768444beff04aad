package nftjson

import (
	"bytes"
	"encoding/json"
	"strings"
)

// elements writes the elements of a set, of which there may be hundreds of
// thousands. The usual ones are written straight from their bytes, others are
// decoded. list is a valid JSON list.
func elements(b *strings.Builder, list json.RawMessage) {
	s := source{list: list}
	s.space()
	if !s.take('[') {
		return
	}
	for n := 0; ; n++ {
		s.space()
		if s.at >= len(s.list) || s.take(']') {
			return
		}
		if n > 0 {
			b.WriteString(",\n\t\t\t     ")
		}
		from := s.at
		var quick strings.Builder
		if s.element(&quick) {
			b.WriteString(quick.String())
		} else {
			s.at = from
			s.skip()
			decoded(b, s.list[from:s.at])
		}
		s.space()
		s.take(',')
	}
}

// decoded writes an element by way of its decoded form.
func decoded(b *strings.Builder, raw json.RawMessage) {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		b.WriteString("json")
		return
	}
	element(b, v)
}

// source reads valid JSON byte by byte.
type source struct {
	list []byte
	at   int
}

func (s *source) space() {
	for s.at < len(s.list) && (s.list[s.at] == ' ' || s.list[s.at] == '\n' || s.list[s.at] == '\t' || s.list[s.at] == '\r') {
		s.at++
	}
}

func (s *source) take(c byte) bool {
	s.space()
	if s.at < len(s.list) && s.list[s.at] == c {
		s.at++
		return true
	}
	return false
}

// word reads a string that needs no quotes, or a number.
func (s *source) word() ([]byte, bool) {
	s.space()
	if s.take('"') {
		n := bytes.IndexByte(s.list[s.at:], '"')
		if n < 0 {
			return nil, false
		}
		w := s.list[s.at : s.at+n]
		s.at += n + 1
		return w, plain(string(w))
	}
	from := s.at
	for s.at < len(s.list) && s.list[s.at] >= '0' && s.list[s.at] <= '9' {
		s.at++
	}
	return s.list[from:s.at], s.at > from
}

// element writes a key, or a list of key and data.
func (s *source) element(b *strings.Builder) bool {
	if !s.take('[') {
		return s.value(b)
	}
	if !s.value(b) || !s.take(',') {
		return false
	}
	b.WriteString(" : ")
	return s.value(b) && s.take(']')
}

// value writes a word, a concatenation of words, or a jump.
func (s *source) value(b *strings.Builder) bool {
	if !s.take('{') {
		w, ok := s.word()
		b.Write(w)
		return ok
	}
	key, ok := s.word()
	if !ok || !s.take(':') {
		return false
	}
	switch string(key) {
	case "concat":
		if !s.take('[') {
			return false
		}
		for n := 0; ; n++ {
			if n > 0 {
				b.WriteString(" . ")
			}
			w, ok := s.word()
			if !ok {
				return false
			}
			b.Write(w)
			if s.take(']') {
				return s.take('}')
			}
			if !s.take(',') {
				return false
			}
		}
	case "goto", "jump":
		b.Write(key)
		if !s.take('{') {
			return false
		}
		if k, ok := s.word(); !ok || string(k) != "target" || !s.take(':') {
			return false
		}
		w, ok := s.word()
		b.WriteByte(' ')
		b.Write(w)
		return ok && s.take('}') && s.take('}')
	}
	return false
}

// skip moves behind the value that begins here.
func (s *source) skip() {
	depth := 0
	for ; s.at < len(s.list); s.at++ {
		switch s.list[s.at] {
		case '"':
			for s.at++; s.at < len(s.list) && s.list[s.at] != '"'; s.at++ {
				if s.list[s.at] == '\\' {
					s.at++
				}
			}
		case '[', '{':
			depth++
		case ']', '}':
			if depth == 0 {
				return
			}
			depth--
		case ',':
			if depth == 0 {
				return
			}
		}
		if depth == 0 && (s.list[s.at] == ']' || s.list[s.at] == '}') {
			s.at++
			return
		}
	}
}
