package nfttext

import (
	"net/netip"
	"strings"

	"portolan/netfilter/nftword"
)

// kind is what a token is.
type kind uint8

const (
	end     kind = iota
	line         // end of a line, or a semicolon
	word         // a name, number, address
	quoted       // text in quotes, without them
	special      // punctuation
)

// token is one word of the text.
type token struct {
	kind  kind
	text  string
	at    int  // where it begins
	glued bool // nothing stands between it and the token before
}

func (t token) is(s string) bool { return t.kind == special && t.text == s }

func (t token) word(s string) bool { return t.kind == word && t.text == s }

// scanner takes a text apart. Its position may be kept and set back.
type scanner struct {
	text string
	pos  int
	stop int  // where the text ends for now
	flat bool // ends of lines count for nothing

	ahead struct { // what next gave last by peek, and where from and to
		token
		from, to, stop int
		flat           bool
	}
	counted, lines int // lines begun before a position
}

// separates tells the bytes that are no part of words.
var separates [256]bool

func init() {
	for _, c := range " \t\r\n{}(),;=!<>&|^@\"#[]:" {
		separates[byte(c)] = true
	}
}

// next gives the next token and moves behind it.
func (s *scanner) next() token {
	if a := &s.ahead; a.from == s.pos && a.to > a.from && a.stop == s.stop && a.flat == s.flat {
		s.pos = a.to
		return a.token
	}
	return s.read()
}

// read cuts off the next token, without remarks and line ends that nft passes over.
func (s *scanner) read() token {
	from := s.pos
	for s.pos < s.stop {
		switch c := s.text[s.pos]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' && s.flat:
			s.pos++
		case c == '\\' && s.pos+1 < s.stop && s.text[s.pos+1] == '\n':
			s.pos += 2
		case c == '#':
			s.pos = s.endOfLine()
		default:
			t := s.token()
			t.glued = t.at == from
			return t
		}
	}
	return token{kind: end, at: s.pos}
}

func (s *scanner) endOfLine() int {
	if i := strings.IndexByte(s.text[s.pos:s.stop], '\n'); i >= 0 {
		return s.pos + i
	}
	return s.stop
}

// peek gives the next token without moving.
func (s *scanner) peek() token {
	pos := s.pos
	t := s.next()
	a := &s.ahead
	a.token, a.from, a.to, a.stop, a.flat = t, pos, s.pos, s.stop, s.flat
	s.pos = pos
	return t
}

// token reads the token that begins here.
func (s *scanner) token() token {
	at := s.pos
	switch c := s.text[at]; c {
	case '\n', ';':
		s.pos++
		return token{kind: line, text: s.text[at:s.pos], at: at}
	case '"':
		s.pos++
		n := strings.IndexByte(s.text[s.pos:s.stop], '"')
		if n < 0 {
			t := token{kind: quoted, text: s.text[s.pos:s.stop], at: at}
			s.pos = s.stop
			return t
		}
		t := token{kind: quoted, text: s.text[s.pos : s.pos+n], at: at}
		s.pos += n + 1
		return t
	case '=', '!', '<', '>':
		s.pos++
		if s.pos < s.stop && (s.text[s.pos] == '=' || (c != '!' && c != '=' && s.text[s.pos] == c)) {
			s.pos++
		}
		return token{kind: special, text: s.text[at:s.pos], at: at}
	}
	if s.text[at] != ':' && separates[s.text[at]] {
		s.pos++
		return token{kind: special, text: s.text[at:s.pos], at: at}
	}
	return s.word()
}

// word reads a run of word bytes. Colons belong to it only within IPv6 and
// MAC addresses.
func (s *scanner) word() token {
	at, i, colon := s.pos, s.pos, -1
	for ; i < s.stop && (!separates[s.text[i]] || s.text[i] == ':'); i++ {
		if colon < 0 && s.text[i] == ':' {
			colon = i
		}
	}
	lone := colon == at && (i == at+1 || s.text[at+1] != ':')
	if colon >= 0 && (lone || !isAddress(s.text[at:i])) {
		if i = colon; i == at {
			i++
		}
	}
	s.pos = i
	t := token{kind: word, text: s.text[at:i], at: at}
	if t.text == "." || t.text == ":" || t.text == "/" {
		t.kind = special
	}
	return t
}

// isAddress tells words with colons that are one word: an IPv6 address or
// prefix, a range of them, a MAC address.
func isAddress(s string) bool {
	for range 2 {
		piece, rest, more := strings.Cut(s, "-")
		a, _, _ := strings.Cut(piece, "/")
		if _, err := netip.ParseAddr(a); err != nil && !nftword.IsMAC(piece) {
			return false
		}
		if !more {
			return true
		}
		s = rest
	}
	return false
}

// skipBlock moves behind the brace that closes the one just read.
func (s *scanner) skipBlock() {
	for depth := 1; depth > 0; {
		switch t := s.next(); {
		case t.kind == end:
			return
		case t.is("{"):
			depth++
		case t.is("}"):
			depth--
		}
	}
}

// ruleEnd finds where the statement that begins here ends: at a line's end, a
// semicolon or a closing brace that no brace within it opened.
func (s *scanner) ruleEnd() int {
	end, _ := s.closedEnd()
	return end
}

// closedEnd is ruleEnd; closed is false when braces within the statement are
// open at the text's end.
func (s *scanner) closedEnd() (at int, closed bool) {
	keep := *s
	defer func() { s.pos, s.flat = keep.pos, keep.flat }()
	depth := 0
	for {
		s.flat = depth > 0
		switch t := s.next(); {
		case t.kind == end, t.kind == line && depth == 0:
			return t.at, depth == 0
		case t.is("{"):
			depth++
		case t.is("}"):
			if depth == 0 {
				return t.at, true
			}
			depth--
		}
	}
}

// lineAt is the number of the line at a position, from 1. It is quick when
// positions grow.
func (s *scanner) lineAt(pos int) int {
	if pos < s.counted {
		s.counted, s.lines = 0, 0
	}
	s.lines += strings.Count(s.text[s.counted:pos], "\n")
	s.counted = pos
	return s.lines + 1
}
