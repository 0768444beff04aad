package linux

import (
	"context"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"portolan/dataplane"
)

// Changes sends when links, addresses, routes or our neighbours changed in this
// namespace, by whomever: what this program writes is heard too, and costs one
// look at what is there.
func (n *Network) Changes(ctx context.Context) <-chan dataplane.Notice {
	go watch(ctx, n, netlink.LinkSubscribeAt, func(netlink.LinkUpdate) bool { return true })
	go watch(ctx, n, netlink.AddrSubscribeAt, func(netlink.AddrUpdate) bool { return true })
	go watch(ctx, n, netlink.RouteSubscribeAt, func(netlink.RouteUpdate) bool { return true })
	go watch(ctx, n, netlink.NeighSubscribeAt, func(u netlink.NeighUpdate) bool {
		return n.isDevice(u.LinkIndex) // those of other devices come and go all the time
	})
	return n.changed
}

// subscribePause keeps a subscription that always breaks from using up a
// processor.
const subscribePause = 100 * time.Millisecond

// watch tells of the updates that matter, and subscribes again when it breaks:
// updates may be lost then, so that this counts as one.
func watch[T any](ctx context.Context, n *Network, subscribe func(netns.NsHandle, chan<- T, <-chan struct{}) error, matters func(T) bool) {
	for ctx.Err() == nil {
		updates := make(chan T)
		if err := subscribe(n.namespace, updates, ctx.Done()); err == nil {
			for u := range updates { // until the library closes it
				if matters(u) {
					dataplane.Tell(n.changed, dataplane.Notice{})
				}
			}
		}
		dataplane.Tell(n.changed, dataplane.Notice{})
		select {
		case <-ctx.Done():
		case <-time.After(subscribePause):
		}
	}
}
