package nftables

import (
	"errors"
	"slices"
	"strings"

	"portolan/dataplane"
	"portolan/kernel/nft"
)

// The kernel finds a range in a concatenation, to remove it, by walking over all that
// were added before (nft_pipapo_remove of Linux 6.18): the last 100 of 4,000 took 3 s,
// all of them from the last to the first a minute, and meanwhile nobody else writes to
// nf_tables. To fill a new set in the place of the old one took 0.1 s.
const (
	fewRanges    = 8   // are removed one by one, of however many
	rangesToMove = 500 // are added to a new set in the time in which one is removed
)

// sourcesCopy is a set that is there while sources is made anew. No plan asks for it, so
// that one that was left goes with the next look.
const sourcesCopy = "sources-copy"

// checkSourcesRule is the one rule that looks into sources, or their copy.
func (w *words) checkSourcesRule(set string) string {
	return w.service + " @" + limited + " " + w.service + " . " + w.ip + " saddr != @" + set + " goto " + bar
}

// exchanged are source ranges that go and that come, these with their tags.
type exchanged struct {
	gone, come []nft.Element
	tags       []int
}

// moveRanges makes the set of source ranges anew, without those that are gone and with
// those that come. It tells whether it did: not where it is as well to remove these one by
// one. It takes three transactions: after one that both makes a set of ranges and has a
// rule look into it, packets meet the rule some time before they find anything in the set
// (nf_tables_commit of Linux 6.18). So the rule looks into a copy meanwhile, which has all
// that was there.
func (b *Backend) moveRanges(x exchanged, tag int) (moved bool, err error) {
	if len(x.gone) < fewRanges {
		return false, nil
	}
	sets, err := b.options.Conn.Sets(b.table)
	if err != nil || slices.ContainsFunc(sets, func(s nft.Set) bool { return s.Name == sourcesCopy }) {
		return false, err
	}
	all, stay, err := b.rangesWithout(x.gone)
	if err != nil || len(x.gone)*rangesToMove < len(all) {
		return false, err
	}
	copied, anew, back := nft.NewBatch(b.table), nft.NewBatch(b.table), nft.NewBatch(b.table)
	b.addRanges(copied, sourcesCopy, all, tag)
	if err := b.checkRanges(anew, sourcesCopy, sources, tag); err != nil {
		return false, err
	}
	b.addRanges(anew, sources, stay, tag)
	for i, e := range x.come {
		anew.AddElement(sources, e, x.tags[i])
	}
	if err := b.checkRanges(back, sources, sourcesCopy, tag); err != nil {
		return false, err
	}
	if err := b.options.Conn.Commit(copied); err != nil {
		return false, err
	}
	if err := b.options.Conn.Commit(anew); err != nil {
		left := nft.NewBatch(b.table)
		left.DeleteSet(sourcesCopy, tag)
		return false, errors.Join(err, b.options.Conn.Commit(left))
	}
	return true, b.options.Conn.Commit(back)
}

// rangesWithout reads all source ranges of the kernel, and which of them are not gone.
func (b *Backend) rangesWithout(gone []nft.Element) (all, stay []nft.Element, err error) {
	going := make(map[string]bool, len(gone))
	for _, e := range gone {
		going[string(e.Key)+string(e.KeyEnd)] = true
	}
	err = b.options.Conn.Elements(b.table, sources, func() { all, stay = all[:0], stay[:0] }, func(e nft.Element) {
		bytes := append(append([]byte(nil), e.Key...), e.KeyEnd...)
		e = nft.Element{Key: bytes[:len(e.Key)], KeyEnd: bytes[len(e.Key):]}
		all = append(all, e)
		if !going[string(bytes)] {
			stay = append(stay, e)
		}
	})
	return all, stay, err
}

// addRanges makes a set with the ranges.
func (b *Backend) addRanges(batch *nft.Batch, set string, list []nft.Element, tag int) {
	batch.AddSet(b.words.setOf(set, shapes[sources]), tag)
	for _, e := range list {
		batch.AddElement(set, e, tag)
	}
}

// checkRanges has the rule look into a set, and removes another, into which it looked.
func (b *Backend) checkRanges(batch *nft.Batch, in, not string, tag int) error {
	rule, err := b.words.rule(checkSources, b.words.checkSourcesRule(in))
	if err != nil {
		return err
	}
	batch.FlushChain(checkSources, tag)
	batch.AddRule(rule, tag)
	batch.DeleteSet(not, tag)
	return nil
}

// moveRanges has the ranges that come and go with the steps of a stage exchanged at once
// and before them, where that is faster: then u.moved. Those of a frontend that is no more
// limited are not among them, but go later.
func (u *update) moveRanges(stage *[steps][]step) error {
	u.moved = false
	var list []step
	ranges := 0
	for _, steps := range stage {
		for _, s := range steps {
			if s.set != sources {
				continue
			}
			list = append(list, s)
			if s.goes {
				ranges += 1 + strings.Count(s.old, ",")
			}
		}
	}
	if u.b.rebuild || ranges < fewRanges {
		return nil
	}
	// The kernel has to have what is before, and to be done with it.
	if err := errors.Join(u.send(), u.taken()); err != nil {
		return err
	}
	u.b.reader.reset()
	var x exchanged
	for _, s := range list {
		old, now, err := u.elements(s)
		if err != nil {
			return err
		}
		gone, come := difference(old, now)
		x.gone, x.come = append(x.gone, gone...), append(x.come, come...)
		x.tags = append(x.tags, slices.Repeat([]int{u.tagOf(s.key)}, len(come))...)
	}
	var err error
	u.moved, err = u.b.moveRanges(x, u.tag(dataplane.Key{}))
	return u.answer(err)
}

// rangesOf are the source ranges of what waits to be removed.
func (b *Backend) rangesOf(due waiting) ([]nft.Element, error) {
	b.reader.reset()
	var out []nft.Element
	for id, data := range due.atoms {
		if id.set != sources {
			continue
		}
		list, err := b.reader.elementsOf(id.set, shapes[sources], id.name, data)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}
