package conntrack

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// Table is the kernel's table of connections, of the network namespace in which
// it was opened. It is not safe for use by several goroutines; while Flows
// yields, Delete may be called.
type Table struct {
	dump, change *netlink.Socket
	seq          uint32 // of the last question, on either
	blind        bool   // the kernel knows no filters but the family (before 5.8)
}

// Open opens the table.
func Open() (*Table, error) {
	dump, err := netlink.Open()
	if err != nil {
		return nil, fmt.Errorf("conntrack: %w", err)
	}
	change, err := netlink.Open()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("conntrack: %w", err), dump.Close())
	}
	return &Table{dump: dump, change: change}, nil
}

// Close ends the use of the table.
func (t *Table) Close() error {
	return errors.Join(t.dump.Close(), t.change.Close())
}

// ErrInterrupted is the error of a dump that may lack entries, as the table
// changed its size meanwhile.
var ErrInterrupted = errors.New("conntrack: the table changed its size while it was read")

// Flows streams the flows that some of the filters select, each as the kernel comes
// upon it: flows that come or go meanwhile may be there or not, and those that two
// filters select may be there twice. After an error nothing follows. It ends with the
// context.
func (t *Table) Flows(ctx context.Context, filters ...Filter) iter.Seq2[Flow, error] {
	return func(yield func(Flow, error) bool) {
		for _, w := range t.walks(filters) {
			if !t.walk(ctx, w, yield) {
				return
			}
		}
	}
}

// walk is one dump: what the kernel is asked for, and what is wanted of that.
type walk struct {
	asked  Filter
	wanted []Filter
}

// walks is how often the kernel has to walk its table.
func (t *Table) walks(filters []Filter) (out []walk) {
	for _, f := range filters {
		asked := f.known(t.blind)
		i := slices.IndexFunc(out, func(w walk) bool { return w.asked == asked })
		if i < 0 {
			i = len(out)
			out = append(out, walk{asked: asked})
		}
		out[i].wanted = append(out[i].wanted, f)
	}
	return out
}

// walk tells whether to go on.
func (t *Table) walk(ctx context.Context, w walk, yield func(Flow, error) bool) bool {
	t.seq++
	seq := t.seq // Delete may go on counting
	request := writer{}
	request.dump(seq, w.asked)
	if err := t.dump.Send(request.Buf); err != nil {
		yield(Flow{}, fmt.Errorf("conntrack: ask for flows: %w", err))
		return false
	}
	listening, interrupted := true, false
	for {
		list, err := t.dump.Receive(true)
		if err != nil {
			if listening {
				yield(Flow{}, fmt.Errorf("conntrack: read flows: %w", err))
			}
			return false
		}
		ended := ctx.Err() != nil // what is under way is read to its end
		for m := range netlink.Messages(list) {
			if m.Seq != seq {
				continue
			}
			interrupted = interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
			if m.Type == unix.NLMSG_ERROR || m.Type == unix.NLMSG_DONE {
				err := endOfDump(ctx, m, interrupted)
				if err != nil && listening {
					yield(Flow{}, err)
				}
				return err == nil && listening
			}
			if !listening || ended {
				continue
			}
			if flow, ok := parseFlow(m); ok && t.selects(w, flow) {
				listening = yield(flow, nil)
			}
		}
	}
}

// selects tells whether a flow is wanted. One that was not asked for shows that the
// kernel knows no filters.
func (t *Table) selects(w walk, f Flow) bool {
	asked := w.asked
	asked.Unreplied = false // known later than the rest
	t.blind = t.blind || !asked.Match(f)
	return slices.ContainsFunc(w.wanted, func(filter Filter) bool { return filter.Match(f) })
}

// endOfDump tells why a dump is not all that was asked for.
func endOfDump(ctx context.Context, last netlink.Message, interrupted bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := last.Errno(); err != 0 {
		return fmt.Errorf("conntrack: read flows: %w", err)
	}
	if interrupted {
		return ErrInterrupted
	}
	return nil
}

// batch is how many deletions the kernel is asked for at once; an answer to each
// fits in a socket buffer.
const batch = 256

// Delete removes entries and returns how many it removed; those that ended
// meanwhile do not count, and their successors stay. An error does not keep it
// from removing the rest.
func (t *Table) Delete(flows []Flow) (removed int, err error) {
	for part := range slices.Chunk(flows, batch) {
		n, failed := t.deleteBatch(part)
		removed += n
		if err == nil {
			err = failed
		}
	}
	return removed, err
}

// deleteBatch sends one datagram with a request for each flow, and reads answers until
// that of the last. Only the last is asked to be acknowledged; the kernel answers the
// others when they fail, as it does where a flow has ended by itself, which is no error.
func (t *Table) deleteBatch(flows []Flow) (removed int, err error) {
	first := t.seq + 1
	w := writer{}
	for i, f := range flows {
		t.seq++
		var flags uint16
		if i == len(flows)-1 { // others are answered only when they fail
			flags = unix.NLM_F_ACK
		}
		w.remove(t.seq, flags, f)
	}
	if err := t.change.Send(w.Buf); err != nil {
		return 0, fmt.Errorf("conntrack: delete flows: %w", err)
	}
	removed = len(flows)
	for {
		list, failed := t.change.Receive(true)
		if failed != nil {
			return 0, fmt.Errorf("conntrack: delete flows: %w", failed)
		}
		for m := range netlink.Messages(list) {
			at := int(m.Seq - first)
			if m.Type != unix.NLMSG_ERROR || at < 0 || at >= len(flows) {
				continue
			}
			if code := m.Errno(); code != 0 {
				removed--
				if code != unix.ENOENT && err == nil {
					err = fmt.Errorf("conntrack: delete %v: %w", flows[at], code)
				}
			}
			if at == len(flows)-1 {
				return removed, err
			}
		}
	}
}
