package nft

import (
	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// readExprs reads the expressions of a rule; complete is false when some part is
// not one that this package writes.
func readExprs(f Family, b []byte) (list []Expr, complete bool) {
	complete = true
	for _, element := range netlink.Attributes(b) {
		var name string
		var data []byte
		for typ, value := range netlink.Attributes(element) {
			switch typ {
			case unix.NFTA_EXPR_NAME:
				name = netlink.Text(value)
			case unix.NFTA_EXPR_DATA:
				data = value
			}
		}
		e := readExpr(f, name, fieldsOf(data))
		if e == nil {
			complete = false
			continue
		}
		list = append(list, e)
	}
	return list, complete
}

// fields are the attributes of one expression by type. No expression has more.
type fields [16][]byte

func fieldsOf(b []byte) (f fields) {
	for typ, value := range netlink.Attributes(b) {
		if int(typ) < len(f) {
			f[typ] = value
		}
	}
	return f
}

func (f *fields) u32(i int) uint32 { return netlink.U32(f[i]) }

// reg reads a register. The kernel names every fourth one by its old number, 1
// to 4, of 16 bytes each.
func (f *fields) reg(i int) uint32 {
	r := netlink.U32(f[i])
	if r >= 1 && r <= 4 {
		return Reg + (r-1)*4
	}
	return r
}

// value reads data in an attribute of its own.
func (f *fields) value(i int) string {
	for typ, data := range netlink.Attributes(f[i]) {
		if typ == unix.NFTA_DATA_VALUE {
			return string(data)
		}
	}
	return ""
}

// only tells whether no attributes but those are there.
func (f *fields) only(types ...int) bool {
	for _, t := range types {
		f[t] = nil
	}
	for _, value := range f {
		if value != nil {
			return false
		}
	}
	return true
}

// readExpr returns nil for what it does not know.
func readExpr(family Family, name string, f fields) Expr {
	switch name {
	case "payload":
		e := Payload{f.u32(unix.NFTA_PAYLOAD_BASE), f.u32(unix.NFTA_PAYLOAD_OFFSET), f.u32(unix.NFTA_PAYLOAD_LEN), f.reg(unix.NFTA_PAYLOAD_DREG)}
		return known(e, f.only(unix.NFTA_PAYLOAD_BASE, unix.NFTA_PAYLOAD_OFFSET, unix.NFTA_PAYLOAD_LEN, unix.NFTA_PAYLOAD_DREG))
	case "meta":
		if f[unix.NFTA_META_SREG] != nil {
			return MetaSet{f.u32(unix.NFTA_META_KEY), f.reg(unix.NFTA_META_SREG)}
		}
		return Meta{f.u32(unix.NFTA_META_KEY), f.reg(unix.NFTA_META_DREG)}
	case "ct":
		e := Ct{f.u32(unix.NFTA_CT_KEY), f.reg(unix.NFTA_CT_DREG)}
		return known(e, f.only(unix.NFTA_CT_KEY, unix.NFTA_CT_DREG))
	case "cmp":
		op := f.u32(unix.NFTA_CMP_OP)
		e := Cmp{f.reg(unix.NFTA_CMP_SREG), op == unix.NFT_CMP_NEQ, f.value(unix.NFTA_CMP_DATA)}
		return known(e, op == unix.NFT_CMP_NEQ || op == unix.NFT_CMP_EQ)
	case "bitwise":
		e := Bitwise{f.reg(unix.NFTA_BITWISE_SREG), f.reg(unix.NFTA_BITWISE_DREG), f.value(unix.NFTA_BITWISE_MASK), f.value(unix.NFTA_BITWISE_XOR)}
		return known(e, f.u32(bitwiseOp) == 0)
	case "immediate":
		return readImmediate(f)
	}
	return readStatement(family, name, f)
}

func known(e Expr, is bool) Expr {
	if is {
		return e
	}
	return nil
}

// readImmediate reads a value for a register, or a verdict: the kernel has one kind for
// both.
func readImmediate(f fields) Expr {
	if dreg := f.reg(unix.NFTA_IMMEDIATE_DREG); dreg != NoReg {
		return Immediate{dreg, f.value(unix.NFTA_IMMEDIATE_DATA)}
	}
	v := readVerdict(f[unix.NFTA_IMMEDIATE_DATA])
	if v == nil {
		return nil
	}
	return Decide{*v}
}

// readVerdict reads the data of a verdict map or an immediate, nil when it is
// none.
func readVerdict(b []byte) *Verdict {
	for typ, data := range netlink.Attributes(b) {
		if typ != unix.NFTA_DATA_VERDICT {
			continue
		}
		f := fieldsOf(data)
		return &Verdict{Code(int32(f.u32(unix.NFTA_VERDICT_CODE))), netlink.Text(f[unix.NFTA_VERDICT_CHAIN])}
	}
	return nil
}

// readStatement reads what writeStatement writes, nil for what it does not know.
func readStatement(family Family, name string, f fields) Expr {
	switch name {
	case "lookup":
		return Lookup{netlink.Text(f[unix.NFTA_LOOKUP_SET]), f.reg(unix.NFTA_LOOKUP_SREG), f.reg(unix.NFTA_LOOKUP_DREG),
			f[unix.NFTA_LOOKUP_DREG] != nil, f.u32(unix.NFTA_LOOKUP_FLAGS)&lookupInvert != 0}
	case "numgen":
		return Numgen{f.reg(unix.NFTA_NG_DREG), f.u32(unix.NFTA_NG_MODULUS), f.u32(unix.NFTA_NG_OFFSET), f.u32(unix.NFTA_NG_TYPE) == unix.NFT_NG_RANDOM}
	case "fib":
		flags := f.u32(unix.NFTA_FIB_FLAGS)
		e := Fib{f.reg(unix.NFTA_FIB_DREG), flags == unix.NFTA_FIB_F_SADDR}
		return known(e, f.u32(unix.NFTA_FIB_RESULT) == fibAddrType && (e.Source || flags == unix.NFTA_FIB_F_DADDR))
	case "nat":
		e := DNAT{Family(f.u32(unix.NFTA_NAT_FAMILY)), f.reg(unix.NFTA_NAT_REG_ADDR_MIN), f.reg(unix.NFTA_NAT_REG_PROTO_MIN)}
		return known(e, f.u32(unix.NFTA_NAT_TYPE) == unix.NFT_NAT_DNAT && f.u32(unix.NFTA_NAT_FLAGS) == natFlags)
	case "masq":
		flags := f.u32(unix.NFTA_MASQ_FLAGS)
		e := Masquerade{flags == fullyRandom}
		return known(e, (e.FullyRandom || flags == 0) && f[unix.NFTA_MASQ_REG_PROTO_MIN] == nil)
	case "reject":
		e := Reject{family}
		code := f[unix.NFTA_REJECT_ICMP_CODE]
		return known(e, f.u32(unix.NFTA_REJECT_TYPE) == unix.NFT_REJECT_ICMP_UNREACH && len(code) == 1 && code[0] == e.code())
	case "counter":
		return Counter{}
	case "dynset":
		inner, counts := counterOf(f[unix.NFTA_DYNSET_EXPR])
		e := Update{netlink.Text(f[unix.NFTA_DYNSET_SET_NAME]), f.reg(unix.NFTA_DYNSET_SREG_KEY), f.reg(unix.NFTA_DYNSET_SREG_DATA), netlink.U64(f[dynsetTimeout]), counts}
		return known(e, f.u32(unix.NFTA_DYNSET_OP) == unix.NFT_DYNSET_OP_UPDATE && (inner == "" || counts))
	}
	return nil
}
