package nft

import (
	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// Counts hands to each the key of every element of a set, and how many packets the
// element counted; see Update. begin is called before the first, and again when it
// has to start over. The bytes of a key are valid only during the call.
func (c *Conn) Counts(t Table, set string, begin func(), each func(key []byte, packets uint64)) error {
	return c.elements(t, set, begin, func(element []byte) {
		var key []byte
		var packets uint64
		for typ, value := range netlink.Attributes(element) {
			switch typ {
			case unix.NFTA_SET_ELEM_KEY:
				key = readValue(value)
			case unix.NFTA_SET_ELEM_EXPR:
				_, packets, _ = counter(value)
			}
		}
		each(key, packets)
	})
}

// Packets returns how many packets each rule of a chain counted, in order: 0 for a
// rule without a Counter.
func (c *Conn) Packets(t Table, chain string) ([]uint64, error) {
	var out []uint64
	err := c.rules(t, chain, func() { out = out[:0] }, func(expressions []byte) {
		var packets uint64
		for _, e := range netlink.Attributes(expressions) {
			if _, n, is := counter(e); is {
				packets = n
			}
		}
		out = append(out, packets)
	})
	return out, dumpError("counters of chain "+chain, t, err)
}

// counterOf returns the name of an expression, empty for none, and whether it counts.
func counterOf(expr []byte) (name string, is bool) {
	name, _, is = counter(expr)
	return name, is
}

// counter reads an expression that counts, of which name says that it is one.
func counter(expr []byte) (name string, packets uint64, is bool) {
	f := fieldsOf(expr)
	name = netlink.Text(f[unix.NFTA_EXPR_NAME])
	if name != exprName(Counter{}) {
		return name, 0, false
	}
	data := fieldsOf(f[unix.NFTA_EXPR_DATA])
	return name, netlink.U64(data[unix.NFTA_COUNTER_PACKETS]), true
}
