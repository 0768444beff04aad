package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// BatchError says why the kernel took nothing of a Batch.
type BatchError struct {
	Table Table
	// Refused are the changes at fault, in their order; empty when the error is
	// about the batch as a whole.
	Refused []Refused
	Err     error // the first, a unix.Errno where the kernel gave one
}

// Refused is one change that the kernel does not take.
type Refused struct {
	Tag int // as it was given
	// Certain is false when the kernel did not say which element of several it
	// means; Tag is the first of them.
	Certain bool
	Err     unix.Errno
}

func (e *BatchError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "nft: change table %s: %v", e.Table, e.Err)
	if n := len(e.Refused); n > 1 {
		fmt.Fprintf(&b, ", and %d more", n-1)
	}
	return b.String()
}

func (e *BatchError) Unwrap() error { return e.Err }

// Commit has the kernel take the Batch. An error is a *BatchError when it is
// the kernel's answer, and then nothing was taken; after another error that is
// not known.
func (c *Conn) Commit(b *Batch) error {
	if b.Empty() {
		return nil
	}
	b.start(unix.NFNL_MSG_BATCH_END, 0)
	b.finish()
	err := c.transact(b, len(b.notes)-2)
	if err == nil {
		c.ended++
	}
	return err
}

// Check has the kernel look at the Batch and take nothing of it: it does so with
// one that does not end.
func (c *Conn) Check(b *Batch) error {
	if b.Empty() {
		return nil
	}
	b.endList()
	return c.transact(b, len(b.notes)-1)
}

// transact sends a batch whose last change is at the place last.
func (c *Conn) transact(b *Batch, last int) error {
	base := c.seq + 1
	c.seq += uint32(len(b.notes))
	b.number(base, last)
	if err := c.socket.Send(b.w.Buf); err != nil {
		return fmt.Errorf("nft: send a batch of %d bytes: %w", len(b.w.Buf), err)
	}
	answer := answers{batch: b, base: base, last: last}
	for {
		// Everything is answered by the time that the batch is sent.
		err := c.receive(false, answer.take)
		switch {
		case errors.Is(err, netlink.ErrNothing):
			return answer.result()
		case errors.Is(err, unix.ENOBUFS): // more errors than room for them
			answer.lost = true
		case err != nil:
			return err
		}
	}
}

// number gives every message its sequence number and asks for an answer to the
// last change, which comes also when all went well.
func (b *Batch) number(base uint32, last int) {
	place := 0
	for at := 0; at < len(b.w.Buf); place++ {
		h := b.w.Buf[at:]
		binary.NativeEndian.PutUint32(h[8:], base+uint32(place))
		if place == last {
			binary.NativeEndian.PutUint16(h[6:], binary.NativeEndian.Uint16(h[6:])|unix.NLM_F_ACK)
		}
		at += (int(binary.NativeEndian.Uint32(h)) + 3) &^ 3
	}
}

// answers collects what the kernel says about one batch.
type answers struct {
	batch   *Batch
	base    uint32
	last    int
	refused []Refused
	whole   error // about the batch as a whole
	done    bool
	lost    bool
}

// take notes what a message says of the batch. An error about no change of ours is about the
// whole.
func (a *answers) take(m netlink.Message) bool {
	if m.Type != unix.NLMSG_ERROR || len(m.Body) < 20 || m.Seq-a.base >= uint32(len(a.batch.notes)) {
		return true // left over from before
	}
	place := int(m.Seq - a.base)
	errno := m.Errno()
	switch {
	case errno == 0:
		a.done = a.done || place == a.last
	case place == 0 || place > a.last:
		if a.whole == nil {
			a.whole = errno
		}
	default:
		a.refused = append(a.refused, a.batch.refusal(place, errno, m.Body))
	}
	return true
}

// refusal finds the change that an error is about. The kernel may name it by
// the place of an attribute (from 5.17 on for elements).
func (b *Batch) refusal(place int, errno unix.Errno, body []byte) Refused {
	from, to := b.notes[place].from, len(b.tags)
	if place+1 < len(b.notes) {
		to = b.notes[place+1].from
	}
	r := Refused{Tag: int(b.tags[from]), Certain: to-from == 1, Err: errno}
	if r.Certain {
		return r
	}
	start := b.messageStart(place)
	for typ, value := range netlink.Attributes(body[20:]) {
		if typ != unix.NLMSGERR_ATTR_OFFS || len(value) != 4 {
			continue
		}
		at := start + binary.NativeEndian.Uint32(value)
		i, found := slices.BinarySearch(b.from[from:to], at)
		if !found {
			i-- // inside an element
		}
		if i >= 0 {
			return Refused{Tag: int(b.tags[from+i]), Certain: true, Err: errno}
		}
	}
	return r
}

func (b *Batch) messageStart(place int) uint32 {
	at := 0
	for range place {
		at += (int(binary.NativeEndian.Uint32(b.w.Buf[at:])) + 3) &^ 3
	}
	return uint32(at)
}

// result is nil only when the kernel said that it has taken everything.
func (a *answers) result() error {
	switch {
	case len(a.refused) > 0:
		return &BatchError{a.batch.table, a.refused, a.refused[0].Err}
	case a.whole != nil:
		return &BatchError{a.batch.table, nil, a.whole}
	case a.lost:
		return &BatchError{a.batch.table, nil, errors.New("more errors than there was room for")}
	case !a.done:
		return fmt.Errorf("nft: change table %s: the kernel gave no answer", a.batch.table)
	}
	return nil
}
