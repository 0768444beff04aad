package nftables

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"portolan/kernel/nft"
)

// compile turns the text of a rule into what the kernel runs. It knows the words
// that this package writes, and no others.
func (w *words) compile(text string) ([]nft.Expr, error) {
	c := compiler{words: w, rest: strings.Fields(text)}
	if len(c.rest) == 0 {
		c.fail("there is nothing")
	}
	for len(c.rest) > 0 && c.err == nil {
		c.statement()
	}
	if c.err != nil {
		return nil, fmt.Errorf("nftables: rule %q: %w", text, c.err)
	}
	return c.out, nil
}

// compiler turns the words of a rule into expressions, from the left to the right. After
// an error it does nothing.
type compiler struct {
	*words
	rest []string
	out  []nft.Expr
	err  error
}

func (c *compiler) emit(e ...nft.Expr) { c.out = append(c.out, e...) }

// fail keeps the first error and ends the reading.
func (c *compiler) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
	c.rest = nil
}

// take moves past the given words if they come next.
func (c *compiler) take(phrase string) bool {
	n := 0
	for w := range strings.FieldsSeq(phrase) {
		if n == len(c.rest) || c.rest[n] != w {
			return false
		}
		n++
	}
	c.rest = c.rest[n:]
	return true
}

func (c *compiler) expect(phrase string) {
	if !c.take(phrase) {
		c.fail("%q expected before %q", phrase, strings.Join(c.rest, " "))
	}
}

// word returns the next word, empty at the end.
func (c *compiler) word() string {
	if len(c.rest) == 0 {
		c.fail("it ends too early")
		return ""
	}
	w := c.rest[0]
	c.rest = c.rest[1:]
	return w
}

func (c *compiler) number(s string) uint32 {
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		c.fail("%q is not a number", s)
	}
	return uint32(n)
}

// name returns the next word, which names a set: "@eps-3".
func (c *compiler) name() string {
	name, ok := strings.CutPrefix(c.word(), "@")
	if !ok || name == "" {
		c.fail("the name of a set expected")
	}
	return name
}

// host is an integer as the kernel keeps it in a register.
func host(v uint32) string {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return string(b[:])
}

const zero = "\x00\x00\x00\x00"

// Bits of what conntrack says.
const (
	stateInvalid = 1
	stateNew     = 8
	statusDNAT   = 0x20
)

// reg is the first register; whatever a rule loads begins there.
const reg = nft.Reg

// statement reads the next statement or match.
func (c *compiler) statement() {
	switch {
	case c.take("counter"):
		c.emit(nft.Counter{})
	case c.take("drop"):
		c.emit(nft.Decide{Verdict: nft.Verdict{Code: nft.Drop}})
	case c.take("reject"):
		c.emit(nft.Reject{Family: c.family})
	case c.take("jump"):
		c.emit(nft.Decide{Verdict: nft.Verdict{Code: nft.Jump, Chain: c.word()}})
	case c.take("goto"):
		c.emit(nft.Decide{Verdict: nft.Verdict{Code: nft.Goto, Chain: c.word()}})
	case c.take("masquerade fully-random"):
		c.emit(nft.Masquerade{FullyRandom: true})
	case c.take("ct state new"):
		c.bits(nft.Ct{Key: unix.NFT_CT_STATE, Dreg: reg}, stateNew)
	case c.take("ct state invalid"):
		c.bits(nft.Ct{Key: unix.NFT_CT_STATE, Dreg: reg}, stateInvalid)
	case c.take("ct status dnat"):
		c.bits(nft.Ct{Key: unix.NFT_CT_STATUS, Dreg: reg}, statusDNAT)
	case c.take("iifname"):
		c.iifname(c.word())
	case c.take("fib saddr type local"):
		c.local(nft.Fib{Dreg: reg, Source: true})
	case c.take("fib daddr type local"):
		c.local(nft.Fib{Dreg: reg})
	case c.take("meta mark"):
		c.markStatement()
	case c.take("meta priority set"):
		c.priority()
	case c.take("dnat " + c.ip + " to"):
		c.translate()
	case c.take("meta l4proto tcp"):
		c.protocol(unix.IPPROTO_TCP)
	case c.take("meta l4proto udp"):
		c.protocol(unix.IPPROTO_UDP)
	case c.take("meta l4proto sctp"):
		c.protocol(unix.IPPROTO_SCTP)
	case c.take("update"):
		c.update()
	default:
		c.match()
	}
}

// translate reads "KEY map @map", of endpoints, and "KEY map @map : PORT", of addresses.
func (c *compiler) translate() {
	c.key()
	c.expect("map")
	after := reg + uint32(c.addrLen/4)
	c.emit(nft.Lookup{Set: c.name(), Sreg: reg, Dreg: reg, Map: true})
	if c.take(":") {
		c.emit(nft.Immediate{Dreg: after, Data: c.port()})
	}
	c.emit(nft.DNAT{Family: c.family, Addr: reg, Port: after})
}

func (c *compiler) protocol(number byte) {
	c.load("meta l4proto", reg)
	c.emit(nft.Cmp{Sreg: reg, Data: string([]byte{number})})
}

// port returns the next word, a port, as it is in a packet.
func (c *compiler) port() string {
	n := c.number(c.word())
	if n > math.MaxUint16 {
		c.fail("%d is not a port", n)
	}
	return string([]byte{byte(n >> 8), byte(n)})
}

// bits goes on if one of the bits is set.
func (c *compiler) bits(load nft.Expr, mask uint32) {
	c.emit(load, nft.Bitwise{Sreg: reg, Dreg: reg, Mask: host(mask), Xor: zero}, nft.Cmp{Sreg: reg, Not: true, Data: zero})
}

// iifname matches a name, or the start of one: "veth*".
func (c *compiler) iifname(quoted string) {
	name, err := strconv.Unquote(quoted)
	if err != nil || name == "" || len(name) > unix.IFNAMSIZ {
		c.fail("%s is not the name of an interface", quoted)
		return
	}
	data, wild := strings.CutSuffix(name, "*")
	if !wild {
		data += strings.Repeat("\x00", max(0, unix.IFNAMSIZ-len(name)))
	}
	c.emit(nft.Meta{Key: unix.NFT_META_IIFNAME, Dreg: reg}, nft.Cmp{Sreg: reg, Data: data})
}

// local goes on if the address is one of this host.
func (c *compiler) local(lookup nft.Fib) {
	c.emit(lookup, nft.Cmp{Sreg: reg, Data: host(unix.RTN_LOCAL)})
}

// markStatement reads "set meta mark | BIT", "set meta mark ^ BIT" and "& BIT != 0x00000000".
func (c *compiler) markStatement() {
	load, set := nft.Meta{Key: unix.NFT_META_MARK, Dreg: reg}, nft.MetaSet{Key: unix.NFT_META_MARK, Sreg: reg}
	switch {
	case c.take("set meta mark |"):
		bit := c.number(c.word())
		c.emit(load, nft.Bitwise{Sreg: reg, Dreg: reg, Mask: host(^bit), Xor: host(bit)}, set)
	case c.take("set meta mark ^"):
		c.emit(load, nft.Bitwise{Sreg: reg, Dreg: reg, Mask: host(^uint32(0)), Xor: host(c.number(c.word()))}, set)
	case c.take("&"):
		c.bits(load, c.number(c.word()))
		c.expect("!= 0x00000000")
	default:
		c.fail("meta mark, and then?")
	}
}

// priority reads "none" and "KEY map @map", which the priority of the packet is set to.
func (c *compiler) priority() {
	set := nft.MetaSet{Key: unix.NFT_META_PRIORITY, Sreg: reg}
	if c.take("none") {
		c.emit(nft.Immediate{Dreg: reg, Data: zero}, set)
		return
	}
	c.key()
	c.expect("map")
	c.emit(nft.Lookup{Set: c.name(), Sreg: reg, Dreg: reg, Map: true}, set)
}

// update reads "@MAP { KEY timeout 5s : IP daddr . th dport }", the same without a
// port, and "@SET { KEY timeout 5s counter }".
func (c *compiler) update() {
	set := c.name()
	c.expect("{")
	at := c.key()
	c.expect("timeout")
	seconds, ok := strings.CutSuffix(c.word(), "s")
	if !ok {
		c.fail("a time in seconds expected")
	}
	milliseconds := uint64(c.number(seconds)) * 1000
	if c.take("counter }") {
		c.emit(nft.Update{Set: set, Key: reg, Data: nft.NoReg, Timeout: milliseconds, Count: true})
		return
	}
	c.expect(":")
	c.expect(c.ip + " daddr")
	next := at + c.load(c.ip+" daddr", at)
	if c.take(".") {
		c.expect("th dport")
		c.load("th dport", next)
	}
	c.expect("}")
	c.emit(nft.Update{Set: set, Key: reg, Data: at, Timeout: milliseconds})
}

// classID reads what the function classID writes.
func (c *compiler) classID(text string) uint32 {
	upper, lower, _ := strings.Cut(text, ":")
	return c.number("0x"+upper)<<16 | c.number("0x"+lower)
}

// match reads "KEY @set", "KEY != @set", "KEY vmap @map", "FIELD & CLASSID vmap @map", "IP saddr PREFIX" and
// "IP daddr != PREFIX".
func (c *compiler) match() {
	for _, field := range []string{c.ip + " saddr", c.ip + " daddr"} {
		if n := len(c.rest); n > 2 && field == c.rest[0]+" "+c.rest[1] && !strings.HasPrefix(c.rest[2], "@") && c.rest[2] != "." &&
			(c.rest[2] != "!=" || n < 4 || !strings.HasPrefix(c.rest[3], "@")) {
			c.take(field)
			not := c.take("!=")
			c.prefix(field, not, c.word())
			return
		}
	}
	c.key()
	if c.take("&") {
		c.emit(nft.Bitwise{Sreg: reg, Dreg: reg, Mask: host(c.classID(c.word())), Xor: zero})
	}
	if c.take("vmap") {
		c.emit(nft.Lookup{Set: c.name(), Sreg: reg, Dreg: nft.NoReg, Map: true})
		return
	}
	not := c.take("!=")
	c.emit(nft.Lookup{Set: c.name(), Sreg: reg, Not: not})
}

// prefix compares the bytes that a prefix fills, and masks only one that ends
// within a byte.
func (c *compiler) prefix(field string, not bool, text string) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		var addr netip.Addr
		if addr, err = netip.ParseAddr(text); err == nil {
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
	}
	if err != nil || p.Addr().BitLen() != c.addrLen*8 {
		c.fail("%q is not a network of this family", text)
		return
	}
	data, bits := string(p.Masked().Addr().AsSlice()), p.Bits()
	if bits > 0 && bits%8 == 0 {
		c.emit(nft.Payload{Base: nft.NetworkHeader, Offset: c.offset(field), Len: uint32(bits / 8), Dreg: reg},
			nft.Cmp{Sreg: reg, Not: not, Data: data[:bits/8]})
		return
	}
	mask := make([]byte, c.addrLen)
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	c.load(field, reg)
	c.emit(nft.Bitwise{Sreg: reg, Dreg: reg, Mask: string(mask), Xor: strings.Repeat("\x00", c.addrLen)}, nft.Cmp{Sreg: reg, Not: not, Data: data})
}

// key loads a concatenation into the registers from reg on, and returns the
// first one after it.
func (c *compiler) key() (next uint32) {
	next = reg
	for {
		next = c.field(next)
		if !c.take(".") {
			return next
		}
	}
}

// field loads one field, or "numgen random mod N" and "numgen inc mod N offset M", into
// the registers from at on, and returns the first one after it.
func (c *compiler) field(at uint32) (next uint32) {
	for _, field := range []string{c.ip + " saddr", c.ip + " daddr", lastBits, "meta l4proto", "meta priority", "th dport"} {
		if c.take(field) {
			return at + c.load(field, at)
		}
	}
	c.expect("numgen")
	random := c.take("random")
	if !random {
		c.expect("inc")
	}
	c.expect("mod")
	g := nft.Numgen{Dreg: at, Modulus: c.number(c.word()), Random: random}
	if c.take("offset") {
		g.Offset = c.number(c.word())
	}
	if g.Modulus == 0 {
		c.fail("a number below 0")
	}
	c.emit(g)
	return at + 1
}

// load puts a field into registers and returns how many it fills.
func (c *compiler) load(field string, at uint32) uint32 {
	switch field {
	case c.ip + " saddr", c.ip + " daddr":
		c.emit(nft.Payload{Base: nft.NetworkHeader, Offset: c.offset(field), Len: uint32(c.addrLen), Dreg: at})
		return uint32(c.addrLen / 4)
	case lastBits:
		c.emit(nft.Payload{Base: nft.NetworkHeader, Offset: 12, Len: 12, Dreg: at})
		return 3
	case "meta l4proto":
		c.emit(nft.Meta{Key: unix.NFT_META_L4PROTO, Dreg: at})
	case "meta priority":
		c.emit(nft.Meta{Key: unix.NFT_META_PRIORITY, Dreg: at})
	case "th dport":
		c.emit(nft.Payload{Base: nft.TransportHeader, Offset: 2, Len: 2, Dreg: at})
	default:
		panic(fmt.Sprintf("nftables: unknown field %q", field))
	}
	return 1
}

// offset is where an address begins in its header, in bytes.
func (c *compiler) offset(field string) uint32 {
	at := uint32(12) // RFC 791
	if c.family == nft.IPv6 {
		at = 8 // RFC 8200
	}
	if strings.HasSuffix(field, "daddr") {
		at += uint32(c.addrLen)
	}
	return at
}
