package iptables

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"portolan/dataplane"
	"portolan/kernel/iptables"
)

// pipeSize is what a pipe takes at once.
const pipeSize = 64 << 10

// Apply writes the plan with one iptables-restore. A refused line comes back as
// a *dataplane.Refusal that names its object, if the program named the line.
func (b *Backend) Apply(ctx context.Context, p dataplane.Plan) error {
	batch := b.batch()
	count := restoreText{batch: batch}
	count.write(p)
	input := func(w io.Writer) error {
		in := restoreText{out: bufio.NewWriterSize(w, pipeSize), batch: batch}
		in.write(p)
		return in.out.Flush()
	}
	err := b.restore(ctx, input, effectOf(p, count))
	if err == nil {
		return nil
	}
	err = fmt.Errorf("iptables: apply: %w", err)
	var restore *iptables.RestoreError
	if errors.As(err, &restore) && restore.Refused {
		return &dataplane.Refusal{Key: keyOf(p, batch, restore.Line), Err: err}
	}
	return err
}
