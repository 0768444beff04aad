package linux

import (
	"context"
	"time"

	"github.com/vishvananda/netlink"
)

// Changes sends when links, addresses, routes or neighbours changed in this
// namespace, by whomever: what this program writes is heard too, and costs one
// look at what is there.
func (n *Network) Changes(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	go n.follow(ctx, out)
	return out
}

// follow subscribes, and again when a subscription breaks: messages may have
// been lost then, so that this counts as a change.
func (n *Network) follow(ctx context.Context, out chan<- struct{}) {
	for ctx.Err() == nil {
		s, err := subscribe(ctx)
		if err == nil {
			n.forward(ctx, s, out)
			s.end()
		}
		tell(out)
		select {
		case <-ctx.Done():
		case <-time.After(subscribePause):
		}
	}
}

// subscribePause keeps a subscription that always breaks from using up a
// processor.
const subscribePause = 100 * time.Millisecond

type subscription struct {
	links  chan netlink.LinkUpdate
	addrs  chan netlink.AddrUpdate
	routes chan netlink.RouteUpdate
	neighs chan netlink.NeighUpdate
	cancel context.CancelFunc
}

func subscribe(ctx context.Context) (*subscription, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &subscription{make(chan netlink.LinkUpdate), make(chan netlink.AddrUpdate), make(chan netlink.RouteUpdate), make(chan netlink.NeighUpdate), cancel}
	for _, begin := range []func() error{
		func() error { return netlink.LinkSubscribe(s.links, ctx.Done()) },
		func() error { return netlink.AddrSubscribe(s.addrs, ctx.Done()) },
		func() error { return netlink.RouteSubscribe(s.routes, ctx.Done()) },
		func() error { return netlink.NeighSubscribe(s.neighs, ctx.Done()) },
	} {
		if err := begin(); err != nil {
			cancel()
			return nil, err
		}
	}
	return s, nil
}

// end closes the subscription and takes what is still on its way: the library
// blocks on a message that nobody takes.
func (s *subscription) end() {
	s.cancel()
	go drain(s.links)
	go drain(s.addrs)
	go drain(s.routes)
	go drain(s.neighs)
}

func drain[T any](c <-chan T) {
	for range c {
	}
}

// forward tells of every message until a channel is closed: a subscription that
// ended.
func (n *Network) forward(ctx context.Context, s *subscription, out chan<- struct{}) {
	for {
		ok, heard := true, true
		var neigh netlink.NeighUpdate
		select {
		case <-ctx.Done():
			return
		case <-n.again:
		case _, ok = <-s.links:
		case _, ok = <-s.addrs:
		case _, ok = <-s.routes:
		case neigh, ok = <-s.neighs:
			heard = n.isDevice(neigh.LinkIndex) // others come and go all the time
		}
		if !ok {
			return
		}
		if heard {
			tell(out)
		}
	}
}

func tell(out chan<- struct{}) {
	select {
	case out <- struct{}{}:
	default:
	}
}
