package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// ask sends one question.
func (c *Conn) ask(op, flags uint16, f Family, request func(*netlink.Writer)) error {
	c.drain()
	c.seq++
	w := netlink.Writer{Buf: make([]byte, 0, 128)}
	message := w.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|op, flags, c.seq, byte(f), 0)
	request(&w)
	w.End(message)
	return c.socket.Send(w.Buf)
}

// get asks for one object and returns its attributes, valid until the next call.
func (c *Conn) get(op uint16, f Family, request func(*netlink.Writer)) (attrs []byte, err error) {
	if err := c.ask(op, 0, f, request); err != nil {
		return nil, err
	}
	for answered := false; !answered; {
		var failed unix.Errno
		err := c.receive(true, func(m netlink.Message) bool {
			switch {
			case m.Seq != c.seq || len(m.Body) < 4:
				return true // the answer to a question that was given up
			case m.Type == unix.NLMSG_ERROR:
				failed = m.Errno()
			default:
				attrs = m.Body[4:]
			}
			answered = true
			return false
		})
		if err != nil {
			return nil, err
		}
		if failed != 0 {
			return nil, failed
		}
	}
	return attrs, nil
}

// Generation returns the number of the rules of this network namespace, which
// every transaction of anybody increases.
func (c *Conn) Generation() (uint32, error) {
	attrs, err := c.get(unix.NFT_MSG_GETGEN, 0, func(*netlink.Writer) {})
	if err != nil {
		return 0, fmt.Errorf("nft: ask for the generation: %w", err)
	}
	f := fieldsOf(attrs)
	if len(f[unix.NFTA_GEN_ID]) != 4 {
		return 0, errors.New("nft: the kernel does not tell the generation")
	}
	return f.u32(unix.NFTA_GEN_ID), nil
}

// Moment is a moment between the transactions of a network namespace, as one Conn
// knows it.
type Moment struct{ generation, ended uint32 }

// Moment returns the present one.
func (c *Conn) Moment() (Moment, error) {
	generation, err := c.Generation()
	return Moment{generation, c.ended}, err
}

// OthersSince tells whether a transaction that is not of this Conn has ended since m.
// It may say so where there was none: one that changes nothing is not counted by the
// kernel.
func (c *Conn) OthersSince(m Moment) (bool, error) {
	now, err := c.Moment()
	return now.generation-m.generation != now.ended-m.ended, err
}

// HasChain tells whether the chain exists. It costs the same whatever else there is.
func (c *Conn) HasChain(t Table, name string) (bool, error) {
	_, err := c.get(unix.NFT_MSG_GETCHAIN, t.Family, func(w *netlink.Writer) {
		w.Text(unix.NFTA_CHAIN_TABLE, t.Name)
		w.Text(unix.NFTA_CHAIN_NAME, name)
	})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("nft: ask for chain %s of table %s: %w", name, t, err)
	}
	return true, nil
}

// Targets returns where each rule of a chain jumps or goes, in order: empty for a
// rule that does neither. A chain that does not exist has no rules. It costs what
// the chain holds.
func (c *Conn) Targets(t Table, chain string) ([]string, error) {
	var out []string
	err := c.rules(t, chain, func() { out = out[:0] }, func(expressions []byte) {
		target := ""
		exprs, _ := readExprs(t.Family, expressions)
		for _, e := range exprs {
			if d, is := e.(Decide); is {
				target = d.Verdict.Chain
			}
		}
		out = append(out, target)
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return out, dumpError("rules of chain "+chain, t, err)
}

// rules calls each with the expressions of each rule of a chain, in order, and again
// from the first after restart.
func (c *Conn) rules(t Table, chain string, restart func(), each func(expressions []byte)) error {
	return c.dump(unix.NFT_MSG_GETRULE, t.Family,
		func(w *netlink.Writer) {
			w.Text(unix.NFTA_RULE_TABLE, t.Name)
			w.Text(unix.NFTA_RULE_CHAIN, chain)
		},
		restart,
		func(b []byte) {
			f := fieldsOf(b)
			if netlink.Text(f[unix.NFTA_RULE_TABLE]) == t.Name && netlink.Text(f[unix.NFTA_RULE_CHAIN]) == chain {
				each(f[unix.NFTA_RULE_EXPRESSIONS])
			}
		})
}
