package nftables

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"portolan/dataplane"
	"portolan/kernel/nft"
	"portolan/service"
)

// rawKernel is what the Backend is compared with. It takes the same plans and keeps
// their elements, ready as bytes and those of a set together; commit then has the
// kernel take them in one batch. The Backend makes chains and sets ahead, once.
type rawKernel struct {
	b *Backend
	// Elements of the last plan, and those of it that are removed later.
	now, later []rawElement
	made       map[string]bool // chains
}

type rawElement struct {
	set    string
	remove bool
	nft.Element
}

func newRawKernel(tb testing.TB) *rawKernel {
	return &rawKernel{b: live(tb, service.IPv4), made: map[string]bool{}}
}

func (*rawKernel) Observe(context.Context) iter.Seq2[dataplane.Object, error] {
	return func(func(dataplane.Object, error) bool) {}
}

func (*rawKernel) Changes(context.Context) <-chan dataplane.Notice { return nil }

func (r *rawKernel) Apply(ctx context.Context, p dataplane.Plan) error {
	var structure dataplane.Plan
	u := update{b: r.b, late: newWaiting()}
	for _, c := range p.Changes {
		switch {
		case strings.HasPrefix(c.Container, chainPrefix):
			if !c.Remove && !r.made[c.Container] {
				r.made[c.Container] = true
				structure.Changes = append(structure.Changes, c)
			}
		case c.Container == setsContainer:
			c.Deleted = nil
			structure.Changes = append(structure.Changes, c)
		default:
			u.sortElements(c)
		}
	}
	if err := r.b.Apply(ctx, structure); err != nil {
		return err
	}
	memory := reader{b: r.b}
	if err := r.takeNow(u, &memory); err != nil {
		return err
	}
	if err := r.takeLater(u, &memory); err != nil {
		return err
	}
	for _, list := range [][]rawElement{r.now, r.later} {
		slices.SortStableFunc(list, func(a, b rawElement) int { return strings.Compare(a.set, b.set) })
	}
	return nil
}

// takeNow lists the elements of an update that it writes at once.
func (r *rawKernel) takeNow(u update, memory *reader) error {
	r.now = nil
	for _, list := range slices.Concat(u.steps[stageProtect][:], u.steps[stageServe][:], u.steps[stageLast][:]) {
		for _, s := range list {
			old, _ := memory.elementsOf(s.set, s.shape, s.key.Name, s.old)
			now, err := memory.elementsOf(s.set, s.shape, s.key.Name, s.new)
			if err != nil && s.come {
				return err
			}
			gone, come := old, now
			switch {
			case !s.goes:
				gone = nil
			case !s.come:
				come = nil
			default:
				gone, come = difference(old, now)
			}
			r.now = appendRaw(appendRaw(r.now, s.set, true, gone), s.set, false, come)
		}
	}
	return nil
}

// takeLater lists those that it leaves for later.
func (r *rawKernel) takeLater(u update, memory *reader) error {
	r.later = nil
	for id, data := range u.late.atoms {
		s, _ := shapeOf(id.set)
		gone, err := memory.elementsOf(id.set, s, id.name, data)
		if err != nil {
			return err
		}
		r.later = appendRaw(r.later, id.set, true, gone)
	}
	for addr := range u.late.closed {
		come, err := memory.elementsOf(clusterIPs, shapes[clusterIPs], addr, "")
		if err != nil {
			return err
		}
		r.later = appendRaw(r.later, clusterIPs, false, come)
	}
	return nil
}

func appendRaw(to []rawElement, set string, remove bool, list []nft.Element) []rawElement {
	for _, e := range list {
		to = append(to, rawElement{set, remove, e})
	}
	return to
}

// commit has the kernel take a list.
func (r *rawKernel) commit(tb testing.TB, list []rawElement) {
	batch := nft.NewBatch(r.b.table)
	for _, e := range list {
		if e.remove {
			batch.DeleteElement(e.set, e.Element, 0)
		} else {
			batch.AddElement(e.set, e.Element, 0)
		}
	}
	if err := r.b.options.Conn.Commit(batch); err != nil {
		tb.Fatal(err)
	}
}
