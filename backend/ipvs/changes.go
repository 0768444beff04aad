package ipvs

import (
	"context"

	"portolan/dataplane"
)

// Changes sends when somebody else changed a table of rules, as far as iptables.Watch
// can tell. The kernel tells nobody about virtual servers and sets: what others do to
// them is found by the next full look, which is due every sync period in this mode.
func (b *Backend) Changes(ctx context.Context) <-chan dataplane.Notice {
	watch := b.options.Watch
	if watch == nil {
		return nil
	}
	notices := make(chan dataplane.Notice, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-watch.News(b.options.Kernel.Tool.Family):
			}
			change, err := watch.Changed(b.options.Kernel.Tool.Family)
			if err == nil && change.Some {
				dataplane.Tell(notices, dataplane.Notice{By: change.Program, Urgent: change.Lost})
			}
		}
	}()
	return notices
}
