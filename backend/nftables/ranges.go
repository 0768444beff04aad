package nftables

import (
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

// checkSourcesRule is the one rule that looks into sources.
func (w *words) checkSourcesRule() string {
	return w.service + " @" + limited + " " + w.service + " . " + w.ip + " saddr != @" + sources + " goto " + bar
}

// moveRanges adds to the batch, which has to begin a transaction of its own, a new set
// of source ranges that has what the kernel's has, without those that are gone. It
// tells whether it did: not where it is as well to remove these one by one.
func (b *Backend) moveRanges(batch *nft.Batch, gone []nft.Element, tag int) (moved bool, err error) {
	if len(gone) < fewRanges {
		return false, nil
	}
	going := make(map[string]bool, len(gone))
	for _, e := range gone {
		going[string(e.Key)+string(e.KeyEnd)] = true
	}
	var stay []nft.Element
	all := 0
	err = b.options.Conn.Elements(b.table, sources, func() { stay, all = stay[:0], 0 }, func(e nft.Element) {
		all++
		if !going[string(e.Key)+string(e.KeyEnd)] {
			bytes := append(append([]byte(nil), e.Key...), e.KeyEnd...)
			stay = append(stay, nft.Element{Key: bytes[:len(e.Key)], KeyEnd: bytes[len(e.Key):]})
		}
	})
	if err != nil || len(gone)*rangesToMove < all {
		return false, err
	}
	rule, err := b.words.rule(checkSources, b.words.checkSourcesRule())
	if err != nil {
		return false, err
	}
	batch.FlushChain(checkSources, tag)
	batch.DeleteSet(sources, tag)
	batch.AddSet(b.words.setOf(sources, shapes[sources]), tag)
	for _, e := range stay {
		batch.AddElement(sources, e, tag)
	}
	batch.AddRule(rule, tag)
	return true, nil
}

// moveRanges has the ranges that go with the steps of a stage gone with their set, where
// that is faster: then u.moved.
func (u *update) moveRanges(stage *[steps][]step) error {
	u.moved = false
	var going []step
	ranges := 0
	for _, list := range stage {
		for _, s := range list {
			if s.set == sources && s.goes {
				going, ranges = append(going, s), ranges+1+strings.Count(s.old, ",")
			}
		}
	}
	if u.b.rebuild || ranges < fewRanges {
		return nil
	}
	u.b.reader.reset()
	var gone []nft.Element
	for _, s := range going {
		old, now, err := u.elements(s)
		if err != nil {
			return err
		}
		left, _ := difference(old, now)
		gone = append(gone, left...)
	}
	var err error
	u.moved, err = u.b.moveRanges(u.batch, gone, u.tag(dataplane.Key{}))
	return err
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
