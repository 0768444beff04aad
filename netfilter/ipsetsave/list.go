package ipsetsave

// block is the set of an `ipset list` text that is being read.
type block struct {
	name, typ string
	members   bool // its members are being read
}

// asSaved turns a line of `ipset list` into one of `ipset save`; what says nothing
// becomes empty, and lines of `ipset save` stay.
func (b *block) asSaved(f []string) []string {
	switch {
	case f[0] == "Name:" && len(f) == 2:
		*b = block{name: f[1]}
	case b.name == "":
		return f
	case b.members:
		return append([]string{"add", b.name}, f...)
	case f[0] == "Type:" && len(f) == 2:
		b.typ = f[1]
	case f[0] == "Header:":
		return append([]string{"create", b.name, b.typ}, f[1:]...)
	case f[0] == "Members:":
		b.members = true
	}
	return nil
}
