package nftables

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"portolan/dataplane"
	"portolan/kernel/nft"
)

// answer says what an error of the kernel is about.
func (u *update) answer(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("nftables: apply: %w", err)
	var refused *nft.BatchError
	if errors.As(err, &refused) {
		return u.refusal(refused, err)
	}
	return err
}

// refusal tells whether the content is to blame, and which. Errors that say that
// the kernel holds something else than was believed are about the content only
// where it was just looked at.
func (u *update) refusal(e *nft.BatchError, err error) error {
	for _, r := range e.Refused {
		if !slices.Contains(contentErrors, r.Err) && !(u.fresh && r.Certain && slices.Contains(stateErrors, r.Err)) {
			continue
		}
		refusal := &dataplane.Refusal{Err: err}
		if r.Certain {
			tag := r.Tag
			if tag < 0 { // see exchange
				tag = ^tag
				if u.misfits() {
					return fmt.Errorf("%w; the table will be replaced", err)
				}
			}
			refusal.Key = *u.keys[tag]
			refusal.Err = fmt.Errorf("nftables: apply: %s %s: %w", refusal.Key.Container, refusal.Key.Name, r.Err)
		}
		return refusal
	}
	return err
}

// misfits notes that the kernel would not remove an element or a chain. Where it was just
// seen, and not for the first time, others made of it what cannot go by itself: an element
// that no text stands for, or a chain that their rules lead to.
func (u *update) misfits() bool {
	if u.fresh {
		u.b.misfits++
	}
	u.b.replace = u.b.replace || u.b.misfits > 1
	return u.b.replace
}

var contentErrors = []unix.Errno{unix.EINVAL, unix.ERANGE, unix.EOPNOTSUPP, unix.E2BIG, unix.EMLINK, unix.ENFILE,
	unix.ENOSPC, unix.ENAMETOOLONG, unix.ENOTEMPTY, unix.EAFNOSUPPORT}

var stateErrors = []unix.Errno{unix.EEXIST, unix.ENOENT, unix.EBUSY}
