package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// Most elements of one message, and most bytes of its list of elements: the
// length of an attribute has 16 bits.
const (
	mostElements = 1000
	mostBytes    = 60_000
)

// Attributes that golang.org/x/sys/unix does not name.
const (
	listElem      = 1  // NFTA_LIST_ELEM
	setDescConcat = 2  // NFTA_SET_DESC_CONCAT
	setFieldLen   = 1  // NFTA_SET_FIELD_LEN
	setElemKeyEnd = 10 // NFTA_SET_ELEM_KEY_END
)

// Batch is a list of changes to one table that the kernel takes as a whole or
// not at all. Changes take effect at once, in their order where it matters. The
// zero Batch is not usable; see NewBatch.
type Batch struct {
	table Table
	w     netlink.Writer
	at    int      // start of the open message
	notes []note   // one a message
	tags  []int32  // of everything in the messages, in order
	from  []uint32 // where each of tags begins, from the start of the buffer
	list  openList // elements that may still join the last message
	sets  []string // made in this batch, which rules name by number too
	nest  int      // attribute of the open element list
	count int      // elements
}

// note says what a message is about: tags[from:] up to those of the next.
type note struct{ from int }

// openList is the element list that is being written.
type openList struct {
	open bool
	op   uint16
	set  string
	n    int
}

// NewBatch returns an empty Batch for a table.
func NewBatch(t Table) *Batch {
	b := &Batch{table: t}
	b.Reset()
	return b
}

// Reset empties the Batch, and keeps its memory.
func (b *Batch) Reset() {
	b.w.Buf = b.w.Buf[:0]
	b.notes, b.tags, b.from, b.sets = b.notes[:0], b.tags[:0], b.from[:0], b.sets[:0]
	b.list, b.count = openList{}, 0
	b.start(unix.NFNL_MSG_BATCH_BEGIN, 0)
	b.finish()
}

// Grow makes room for that many elements of the usual length.
func (b *Batch) Grow(elements int) {
	const usual = 48 // bytes: an address with protocol, port and slot to one with a port
	b.w.Buf = slices.Grow(b.w.Buf, elements*usual)
	b.tags, b.from = slices.Grow(b.tags, elements), slices.Grow(b.from, elements)
}

// Empty tells whether there is nothing in the Batch.
func (b *Batch) Empty() bool { return len(b.notes) == 1 }

// Len is the number of messages and elements in the Batch.
func (b *Batch) Len() int { return len(b.notes) - 1 + b.count }

// start opens a message. The sequence number is its place in the batch; Commit
// adds the base.
func (b *Batch) start(typ, flags uint16) {
	b.endList()
	family, resource := byte(b.table.Family), uint16(0)
	if typ == unix.NFNL_MSG_BATCH_BEGIN || typ == unix.NFNL_MSG_BATCH_END {
		family, resource = 0, unix.NFNL_SUBSYS_NFTABLES
	}
	b.at = b.w.Begin(typ, flags, uint32(len(b.notes)), family, resource)
	b.notes = append(b.notes, note{from: len(b.tags)})
}

func (b *Batch) finish() {
	b.w.End(b.at)
}

// open starts a message about the table.
func (b *Batch) open(op, flags uint16, tag int) {
	b.start(unix.NFNL_SUBSYS_NFTABLES<<8|op, flags)
	b.tag(tag)
	b.w.Text(1, b.table.Name) // NFTA_*_TABLE is 1 everywhere
}

func (b *Batch) tag(tag int) {
	b.tags = append(b.tags, int32(tag))
	b.from = append(b.from, uint32(len(b.w.Buf)))
}

// The tag of these methods comes back in a BatchError when the kernel refuses
// the change.

// AddTable makes the table, unless it is there.
func (b *Batch) AddTable(tag int) {
	b.open(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, tag)
	b.finish()
}

// DeleteTable removes the table with all that is in it. It must be there.
func (b *Batch) DeleteTable(tag int) {
	b.open(unix.NFT_MSG_DELTABLE, 0, tag)
	b.finish()
}

// AddChain makes a chain, unless it is there.
func (b *Batch) AddChain(c Chain, tag int) {
	b.open(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, tag)
	b.w.Text(unix.NFTA_CHAIN_NAME, c.Name)
	if c.Type != "" {
		hook := b.w.Nest(unix.NFTA_CHAIN_HOOK)
		b.w.U32(unix.NFTA_HOOK_HOOKNUM, uint32(c.Hook))
		b.w.U32(unix.NFTA_HOOK_PRIORITY, uint32(c.Priority))
		b.w.Close(hook)
		b.w.U32(unix.NFTA_CHAIN_POLICY, uint32(Accept))
		b.w.Text(unix.NFTA_CHAIN_TYPE, c.Type)
	}
	b.finish()
}

// DeleteChain removes a chain with its rules. Nothing may lead to it.
func (b *Batch) DeleteChain(name string, tag int) {
	b.open(unix.NFT_MSG_DELCHAIN, 0, tag)
	b.w.Text(unix.NFTA_CHAIN_NAME, name)
	b.finish()
}

// FlushChain removes the rules of a chain.
func (b *Batch) FlushChain(name string, tag int) {
	b.open(unix.NFT_MSG_DELRULE, 0, tag)
	b.w.Text(unix.NFTA_RULE_CHAIN, name)
	b.finish()
}

// AddRule puts a rule at the end of its chain.
func (b *Batch) AddRule(r Rule, tag int) {
	b.open(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, tag)
	b.w.Text(unix.NFTA_RULE_CHAIN, r.Chain)
	list := b.w.Nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, e := range r.Exprs {
		writeExpr(&b.w, e)
	}
	b.w.Close(list)
	if len(r.Userdata) > 0 {
		b.w.Bytes(unix.NFTA_RULE_USERDATA, r.Userdata)
	}
	b.finish()
}

// AddSet makes a set, unless it is there; one that is there with another shape
// is an error.
func (b *Batch) AddSet(s Set, tag int) {
	b.open(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, tag)
	w := &b.w
	w.Text(unix.NFTA_SET_NAME, s.Name)
	b.sets = append(b.sets, s.Name)
	w.U32(unix.NFTA_SET_ID, uint32(len(b.sets)))
	flags := s.Flags
	if s.DataType != 0 {
		flags |= FlagMap
	}
	w.U32(unix.NFTA_SET_FLAGS, uint32(flags))
	w.U32(unix.NFTA_SET_KEY_TYPE, uint32(s.KeyType))
	w.U32(unix.NFTA_SET_KEY_LEN, s.KeyLen)
	if s.DataType != 0 {
		w.U32(unix.NFTA_SET_DATA_TYPE, uint32(s.DataType))
		if s.DataType != TypeVerdict {
			w.U32(unix.NFTA_SET_DATA_LEN, s.DataLen)
		}
	}
	if s.Size > 0 || len(s.Fields) > 0 {
		writeDesc(w, s)
	}
	if len(s.Userdata) > 0 {
		w.Bytes(unix.NFTA_SET_USERDATA, s.Userdata)
	}
	b.finish()
}

// writeDesc writes NFTA_SET_DESC: how many elements, and the lengths of the parts of a key
// with ranges.
func writeDesc(w *netlink.Writer, s Set) {
	desc := w.Nest(unix.NFTA_SET_DESC)
	if s.Size > 0 {
		w.U32(unix.NFTA_SET_DESC_SIZE, s.Size)
	}
	if len(s.Fields) > 0 {
		list := w.Nest(setDescConcat)
		for _, length := range s.Fields {
			field := w.Nest(listElem)
			w.U32(setFieldLen, length)
			w.Close(field)
		}
		w.Close(list)
	}
	w.Close(desc)
}

// DeleteSet removes a set with its elements. No rule may name it.
func (b *Batch) DeleteSet(name string, tag int) {
	b.open(unix.NFT_MSG_DELSET, 0, tag)
	b.w.Text(unix.NFTA_SET_NAME, name)
	b.finish()
}

// FlushSet removes all elements of a set.
func (b *Batch) FlushSet(name string, tag int) {
	b.open(unix.NFT_MSG_DELSETELEM, 0, tag)
	b.w.Text(unix.NFTA_SET_ELEM_LIST_SET, name)
	b.finish()
}

// AddElement puts an element into a set. One that is there with the same data is
// fine, with other data an error.
func (b *Batch) AddElement(set string, e Element, tag int) {
	b.element(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, set, e, tag)
}

// DeleteElement removes an element, which must be there; only its key counts.
func (b *Batch) DeleteElement(set string, e Element, tag int) {
	b.element(unix.NFT_MSG_DELSETELEM, 0, set, Element{Key: e.Key, KeyEnd: e.KeyEnd}, tag)
}

// element puts an element into the open list of its set, or begins another where that is
// full: an attribute has at most 64 KiB.
func (b *Batch) element(op, flags uint16, set string, e Element, tag int) {
	l := &b.list
	if !l.open || l.op != op || l.set != set || l.n >= mostElements || len(b.w.Buf)-b.nest > mostBytes {
		b.start(unix.NFNL_SUBSYS_NFTABLES<<8|op, flags)
		b.w.Text(unix.NFTA_SET_ELEM_LIST_TABLE, b.table.Name)
		b.w.Text(unix.NFTA_SET_ELEM_LIST_SET, set)
		b.nest = b.w.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		*l = openList{open: true, op: op, set: set}
	}
	l.n++
	b.count++
	b.tag(tag)
	writeElement(&b.w, e)
}

// Apart has the next element begin a message. Of the elements in a message the kernel
// names no more than the first that it does not take.
func (b *Batch) Apart() { b.endList() }

// endList ends an element list that is being written.
func (b *Batch) endList() {
	if b.list.open {
		b.w.Close(b.nest)
		b.finish()
		b.list.open = false
	}
}

// writeElement writes one entry of NFTA_SET_ELEM_LIST_ELEMENTS.
func writeElement(w *netlink.Writer, e Element) {
	element := w.Nest(listElem)
	writeValue(w, unix.NFTA_SET_ELEM_KEY, e.Key)
	if e.KeyEnd != nil {
		writeValue(w, setElemKeyEnd, e.KeyEnd)
	}
	switch {
	case e.Verdict != nil:
		data := w.Nest(unix.NFTA_SET_ELEM_DATA)
		writeVerdict(w, *e.Verdict)
		w.Close(data)
	case e.Data != nil:
		writeValue(w, unix.NFTA_SET_ELEM_DATA, e.Data)
	}
	if e.Comment != "" {
		w.Bytes(unix.NFTA_SET_ELEM_USERDATA, commentUserdata(e.Comment))
	}
	w.Close(element)
}

func writeValue(w *netlink.Writer, typ uint16, data []byte) {
	at := w.Nest(typ)
	w.Bytes(unix.NFTA_DATA_VALUE, data)
	w.Close(at)
}

func writeVerdict(w *netlink.Writer, v Verdict) {
	at := w.Nest(unix.NFTA_DATA_VERDICT)
	w.U32(unix.NFTA_VERDICT_CODE, uint32(v.Code))
	if v.Chain != "" {
		w.Text(unix.NFTA_VERDICT_CHAIN, v.Chain)
	}
	w.Close(at)
}

// commentUserdata is a comment as libnftnl stores it: type 0, length, text with
// its zero.
func commentUserdata(s string) []byte {
	if len(s) > 127 {
		panic(fmt.Sprintf("nft: a comment of %d bytes", len(s)))
	}
	return append(append([]byte{0, byte(len(s) + 1)}, s...), 0)
}
