package iptables

import (
	"context"
	"errors"
	"fmt"

	"portolan/dataplane"
	"portolan/kernel/iptables"
)

// Apply writes the plan with one iptables-restore. A refused line comes back as
// a *dataplane.Refusal that names its object, if the program named the line.
func (b *Backend) Apply(ctx context.Context, p dataplane.Plan) error {
	in := restoreText{batch: b.batch()}
	in.write(p)
	err := b.restore(ctx, in.buf.Bytes(), effectOf(p, in.sections))
	if err == nil {
		return nil
	}
	err = fmt.Errorf("iptables: apply: %w", err)
	var restore *iptables.RestoreError
	if errors.As(err, &restore) && restore.Refused {
		return &dataplane.Refusal{Key: keyOf(p, in.batch, restore.Line), Err: err}
	}
	return err
}
