package nft

import (
	"errors"
	"fmt"
	"hash/maphash"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// dumpTries is how often a dump begins again that the kernel says was torn
// because something changed meanwhile. It says so for a change of any table.
const dumpTries = 4

// dump asks for all objects of one kind. begin is called at the start of each
// try, each with the attributes of every object. A dump that stays torn counts
// as good: what it says of a table that nobody else writes is right, and who
// writes by it is told by an error when it is not.
func (c *Conn) dump(op uint16, f Family, request func(*netlink.Writer), begin func(), each func([]byte)) error {
	return c.dumpUnlike(op, f, request, begin, each, func() bool { return false })
}

// dumpUnlike is dump for what may also be seen to be torn when it has come.
func (c *Conn) dumpUnlike(op uint16, f Family, request func(*netlink.Writer), begin func(), each func([]byte), moved func() bool) error {
	for try := 1; ; try++ {
		begin()
		torn, err := c.dumpOnce(op, f, request, each)
		if err != nil || !torn && !moved() || try == dumpTries {
			return err
		}
	}
}

// dumpOnce asks for a dump and reads it to its end. torn tells that something changed
// meanwhile, so that objects may be missing or there twice.
func (c *Conn) dumpOnce(op uint16, f Family, request func(*netlink.Writer), each func([]byte)) (torn bool, err error) {
	if err := c.ask(op, unix.NLM_F_DUMP, f, request); err != nil {
		return false, err
	}
	done := false
	var failed unix.Errno
	for !done {
		err := c.receive(true, func(m netlink.Message) bool {
			if m.Seq != c.seq {
				return true
			}
			torn = torn || m.Flags&unix.NLM_F_DUMP_INTR != 0
			switch {
			case m.Type == unix.NLMSG_DONE || m.Type == unix.NLMSG_ERROR:
				done, failed = true, m.Errno()
			case len(m.Body) >= 4:
				each(m.Body[4:])
			}
			return true
		})
		if err != nil {
			return false, err
		}
	}
	if failed == unix.EINTR {
		return true, nil
	}
	if failed != 0 {
		return false, failed
	}
	return torn, nil
}

// drain throws away what is left of a dump that was given up; its first receive
// also tells the kernel how large messages may be.
func (c *Conn) drain() {
	for c.receive(false, func(netlink.Message) bool { return true }) == nil {
	}
}

func dumpError(what string, t Table, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nft: list %s of table %s: %w", what, t, err)
}

// HasTable tells whether the table exists.
func (c *Conn) HasTable(t Table) (bool, error) {
	names, err := c.Tables(t.Family)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if name == t.Name {
			return true, nil
		}
	}
	return false, nil
}

// IsDormant tells whether somebody put the table to sleep (nft's flag dormant): then no
// packet meets its rules. One that does not exist is not dormant.
func (c *Conn) IsDormant(t Table) (bool, error) {
	attrs, err := c.get(unix.NFT_MSG_GETTABLE, t.Family, func(w *netlink.Writer) { w.Text(unix.NFTA_TABLE_NAME, t.Name) })
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	f := fieldsOf(attrs)
	return f.u32(unix.NFTA_TABLE_FLAGS)&tableDormant != 0, dumpError("flags", t, err)
}

const tableDormant = 1 // NFT_TABLE_F_DORMANT

// Tables lists the tables of a family.
func (c *Conn) Tables(f Family) ([]string, error) {
	var out []string
	err := c.dump(unix.NFT_MSG_GETTABLE, f, func(*netlink.Writer) {}, func() { out = out[:0] }, func(b []byte) {
		list := fieldsOf(b)
		out = append(out, netlink.Text(list[unix.NFTA_TABLE_NAME]))
	})
	if err != nil {
		return nil, fmt.Errorf("nft: list tables of family %s: %w", f, err)
	}
	return out, nil
}

// Chains lists the chains of a table.
func (c *Conn) Chains(t Table) ([]Chain, error) {
	var out []Chain
	err := c.dump(unix.NFT_MSG_GETCHAIN, t.Family, func(*netlink.Writer) {}, func() { out = out[:0] }, func(b []byte) {
		f := fieldsOf(b)
		if netlink.Text(f[unix.NFTA_CHAIN_TABLE]) != t.Name {
			return
		}
		ch := Chain{Name: netlink.Text(f[unix.NFTA_CHAIN_NAME]), Type: netlink.Text(f[unix.NFTA_CHAIN_TYPE])}
		if hook := f[unix.NFTA_CHAIN_HOOK]; hook != nil {
			h := fieldsOf(hook)
			ch.Hook, ch.Priority = Hook(h.u32(unix.NFTA_HOOK_HOOKNUM)), int32(h.u32(unix.NFTA_HOOK_PRIORITY))
			if f.u32(unix.NFTA_CHAIN_POLICY) != uint32(Accept) {
				ch.Type += " with another policy"
			}
		}
		out = append(out, ch)
	})
	return out, dumpError("chains", t, err)
}

// Rules lists the rules of a table, those of a chain together and in order.
func (c *Conn) Rules(t Table) ([]Rule, error) {
	var out []Rule
	err := c.dump(unix.NFT_MSG_GETRULE, t.Family,
		func(w *netlink.Writer) { w.Text(unix.NFTA_RULE_TABLE, t.Name) },
		func() { out = out[:0] },
		func(b []byte) {
			f := fieldsOf(b)
			if netlink.Text(f[unix.NFTA_RULE_TABLE]) != t.Name {
				return
			}
			r := Rule{Chain: netlink.Text(f[unix.NFTA_RULE_CHAIN])}
			exprs, complete := readExprs(t.Family, f[unix.NFTA_RULE_EXPRESSIONS])
			r.Exprs, r.Foreign = exprs, !complete
			r.Userdata = append(r.Userdata, f[unix.NFTA_RULE_USERDATA]...)
			out = append(out, r)
		})
	return out, dumpError("rules", t, err)
}

// Sets lists the sets and maps of a table, without anonymous ones.
func (c *Conn) Sets(t Table) ([]Set, error) {
	var out []Set
	err := c.dump(unix.NFT_MSG_GETSET, t.Family,
		func(w *netlink.Writer) { w.Text(unix.NFTA_SET_TABLE, t.Name) },
		func() { out = out[:0] },
		func(b []byte) {
			f := fieldsOf(b)
			s := Set{
				Name:     netlink.Text(f[unix.NFTA_SET_NAME]),
				Flags:    Flags(f.u32(unix.NFTA_SET_FLAGS)),
				KeyType:  Type(f.u32(unix.NFTA_SET_KEY_TYPE)),
				KeyLen:   f.u32(unix.NFTA_SET_KEY_LEN),
				DataType: Type(f.u32(unix.NFTA_SET_DATA_TYPE)),
				DataLen:  f.u32(unix.NFTA_SET_DATA_LEN),
			}
			s.Userdata = append(s.Userdata, f[unix.NFTA_SET_USERDATA]...)
			readDesc(&s, f[unix.NFTA_SET_DESC])
			if s.Flags&unix.NFT_SET_ANONYMOUS == 0 {
				out = append(out, s)
			}
		})
	if errors.Is(err, unix.ENOENT) { // no such table
		return nil, nil
	}
	return out, dumpError("sets", t, err)
}

func readDesc(s *Set, b []byte) {
	f := fieldsOf(b)
	s.Size = f.u32(unix.NFTA_SET_DESC_SIZE)
	for _, field := range netlink.Attributes(f[setDescConcat]) {
		list := fieldsOf(field)
		s.Fields = append(s.Fields, list.u32(setFieldLen))
	}
}

// Elements hands every element of a set to each, and calls begin before the
// first, and again when it has to start over. The bytes of an Element are valid
// only during the call.
func (c *Conn) Elements(t Table, set string, begin func(), each func(Element)) error {
	return c.elements(t, set, begin, func(element []byte) { each(readElement(element)) })
}

// elements hands the attributes of every element to each. The kernel counts elements
// to go on where a message ended, and says nothing of it when it makes its hash table
// larger in between: then others have those places, some elements are left out and
// some told again, by which it is seen (15,289 of 20,000 on 6.18).
func (c *Conn) elements(t Table, set string, begin func(), each func([]byte)) error {
	seed := maphash.MakeSeed()
	told := map[uint64]struct{}{}
	again := false
	start, take := begin, each
	begin = func() {
		clear(told)
		again = false
		start()
	}
	each = func(element []byte) {
		f := fieldsOf(element)
		var h maphash.Hash
		h.SetSeed(seed)
		for _, part := range [][]byte{f[unix.NFTA_SET_ELEM_KEY], f[setElemKeyEnd], f[unix.NFTA_SET_ELEM_FLAGS]} {
			h.Write(part)
		}
		_, known := told[h.Sum64()]
		again = again || known
		told[h.Sum64()] = struct{}{}
		take(element)
	}
	err := c.dumpUnlike(unix.NFT_MSG_GETSETELEM, t.Family,
		func(w *netlink.Writer) {
			w.Text(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
			w.Text(unix.NFTA_SET_ELEM_LIST_SET, set)
		},
		begin,
		func(b []byte) {
			for typ, list := range netlink.Attributes(b) {
				if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
					continue
				}
				for _, element := range netlink.Attributes(list) {
					each(element)
				}
			}
		},
		func() bool { return again })
	if err != nil {
		return fmt.Errorf("nft: list elements of set %s of table %s: %w", set, t, err)
	}
	return nil
}

// readElement reads what writeElement writes, with the comment of its userdata.
func readElement(b []byte) Element {
	var e Element
	for typ, value := range netlink.Attributes(b) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.Key = readValue(value)
		case setElemKeyEnd:
			e.KeyEnd = readValue(value)
		case unix.NFTA_SET_ELEM_DATA:
			if e.Data = readValue(value); e.Data == nil {
				e.Verdict = readVerdict(value)
			}
		case unix.NFTA_SET_ELEM_USERDATA:
			e.Comment = readComment(value)
		}
	}
	return e
}

func readValue(b []byte) []byte {
	for typ, data := range netlink.Attributes(b) {
		if typ == unix.NFTA_DATA_VALUE {
			return data
		}
	}
	return nil
}

// readComment finds the comment in the userdata of an element: a list of type,
// length, value with a byte for each of the first two.
func readComment(b []byte) string {
	for len(b) >= 2 && int(b[1]) <= len(b)-2 {
		end := 2 + int(b[1])
		if b[0] == 0 {
			return netlink.Text(b[2:end])
		}
		b = b[end:]
	}
	return ""
}
