package dataplane

import (
	"context"
	"errors"
	"slices"
)

// holdBack finds the owners whose objects the kernel refuses and writes what
// all others ask for. It first believes what the refusals say; where they name
// nobody it halves the set of owners until the one at fault is alone.
func (s *Sync) holdBack(ctx context.Context, refusal *Refusal, r *Report) error {
	var blamed []string
	for {
		owner, ok := s.blame(refusal)
		if !ok {
			s.free(blamed) // the messages were misleading
			return s.isolate(ctx, refusal, r)
		}
		if owner != "" {
			blamed = append(blamed, owner)
		}
		err := s.attempt(ctx, r)
		if err == nil {
			return s.acquit(ctx, blamed, r)
		}
		if !errors.As(err, &refusal) {
			return err
		}
	}
}

// blame holds back who the refusal names. The owner is empty when it was a
// container that cannot be removed.
func (s *Sync) blame(refusal *Refusal) (owner string, ok bool) {
	k := refusal.Key
	c := s.want.containers[k.Container]
	if c != nil {
		by, found := s.want.ownerOf(c, c.wanted(s.isHeld), k)
		if !found && c.parts.len() == 1 {
			by, found = c.parts.sole.of.owner, true
		}
		if found && by.Name != "" && !s.isHeld(by.Name) {
			s.held[by.Name] = &Rejection{Owner: by.Name, Key: k, Err: refusal.Err}
			if had, there := s.want.ownerOf(c, c.believed, k); there && had.Name != by.Name {
				s.want.lacks(by.Name, c, k)
			}
			return by.Name, true
		}
	}
	if k.Container == "" || (c != nil && c.parts.len() > 0) || s.kept[k.Container] != nil {
		return "", false
	}
	s.kept[k.Container] = &Rejection{Key: k, Err: refusal.Err}
	return "", true
}

// lacks notes that the kernel has nothing of an owner under a key that the owner lost to
// another so far: for who is held keeps what it has, and this is not among it.
func (w *Want) lacks(owner string, c *container, k Key) {
	p := w.partOf(owner, c)
	if _, known := c.instead(owner); known || p.find(k) == nil {
		return
	}
	has := slices.DeleteFunc(slices.Clone(p.objects()), func(o Object) bool { return o.Key == k })
	c.before.put(newHolding(p.of.owner, has).first())
	w.settle(c)
}

// acquit tries those again that were blamed, one by one: a message can name the wrong
// line, and the kernel refuses what leans on something that others removed meanwhile,
// which is back by now.
func (s *Sync) acquit(ctx context.Context, blamed []string, r *Report) error {
	for _, owner := range blamed {
		if err := s.release(ctx, []string{owner}, r); err != nil {
			return err
		}
	}
	return nil
}

// isolate is for refusals that name nobody.
func (s *Sync) isolate(ctx context.Context, refusal *Refusal, r *Report) error {
	var suspects []string
	for _, owner := range s.want.Dirty() {
		if owner != "" && !s.isHeld(owner) {
			suspects = append(suspects, owner)
			s.held[owner] = &Rejection{Owner: owner, Key: refusal.Key, Err: refusal.Err}
		}
	}
	if len(suspects) == 0 {
		return refusal
	}
	if err := s.attempt(ctx, r); err != nil {
		s.free(suspects) // it is not the owners
		return err
	}
	return s.release(ctx, suspects, r)
}

// release writes what the given owners ask for, all of whom are held; those
// that the kernel refuses stay held.
func (s *Sync) release(ctx context.Context, owners []string, r *Report) error {
	was := make([]*Rejection, len(owners))
	for i, owner := range owners {
		was[i] = s.held[owner]
	}
	s.free(owners)
	err := s.attempt(ctx, r)
	var refusal *Refusal
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refusal):
		return err
	}
	for i, owner := range owners {
		s.held[owner] = was[i]
	}
	if len(owners) == 1 {
		if was[0].Key == (Key{}) {
			s.held[owners[0]] = &Rejection{Owner: owners[0], Key: refusal.Key, Err: refusal.Err}
		}
		return s.attempt(ctx, r)
	}
	half := len(owners) / 2
	if err := s.release(ctx, owners[:half], r); err != nil {
		s.free(owners[half:])
		return err
	}
	return s.release(ctx, owners[half:], r)
}

func (s *Sync) free(owners []string) {
	for _, owner := range owners {
		delete(s.held, owner)
	}
}
