package iptables

import (
	"context"
	"errors"
	"testing"
)

// watched is a Watch of both families in a namespace of its own.
type watched struct {
	*testing.T
	*Watch
	v4, v6 *Tool
}

func forWatches(t *testing.T, f func(w watched)) {
	forVariants(t, func(t *testing.T, tool *Tool) {
		w := watched{T: t, v4: tool, v6: NewTool(IPv6, tool.Variant)}
		var err error
		if w.Watch, err = NewWatch(w.v4, w.v6); err != nil {
			t.Error(err)
			return
		}
		defer w.Close()
		f(w)
	})
}

func (w watched) restore(t *Tool, text string) {
	w.Helper()
	if err := t.Restore(w.Context(), []byte(text)); err != nil {
		w.Error(err)
	}
}

func (w watched) expect(what string, v4, v6 bool) {
	w.Helper()
	for f, want := range map[Family]bool{IPv4: v4, IPv6: v6} {
		if got, err := w.Changed(f); err != nil || got.Some != want {
			w.Errorf("%s: IPv%d changed %v (%v), want %v", what, f, got, err, want)
		}
	}
}

const (
	chainComes = "*filter\n:KUBE-A - [0:0]\n-A KUBE-A -j RETURN\nCOMMIT\n"
	chainGrows = "*filter\n:KUBE-A - [0:0]\n-A KUBE-A -j RETURN\n-A KUBE-A -j RETURN\nCOMMIT\n"
	chainGoes  = "*filter\n:KUBE-A - [0:0]\n-X KUBE-A\nCOMMIT\n"
	chainInNAT = "*nat\n:KUBE-A - [0:0]\n-A POSTROUTING -j KUBE-A\nCOMMIT\n"
)

func TestWatchSeesWhatOthersDo(t *testing.T) {
	forWatches(t, func(w watched) {
		if w.expect("at first", false, false); w.v4.Variant == Legacy && w.v4.Loaded("filter") {
			w.Error("looking loaded the table")
		}
		for _, tool := range []*Tool{w.v4, w.v6} {
			for range tool.Save(w.Context(), "nat") { // which loads the legacy table
			}
		}
		w.expect("after a listing", false, false)
		nft := w.v4.Variant == NFT
		for _, text := range []string{chainComes, chainGrows, chainGoes, chainInNAT} {
			w.restore(w.v4, text)
			w.expect(text, true, nft)
			w.expect("a second time", false, false)
			w.restore(w.v6, text)
			w.expect("IPv6 "+text, nft, true)
		}
	})
}

// Neither family takes the writes of this process for somebody else's, whichever
// of the two writes, also when both do at once.
func TestWatchKnowsTheWritesOfBothFamilies(t *testing.T) {
	forWatches(t, func(w watched) {
		write := func(tool *Tool, text string, e Effect, during func()) {
			err := w.Write(tool.Family, e, func() error {
				w.restore(tool, text)
				if during != nil {
					during()
				}
				return nil
			})
			if err != nil {
				w.Error(err)
			}
		}
		in := func(n int) map[string]int { return map[string]int{"filter": n} }
		write(w.v4, chainComes, Effect{Commits: 1, Entries: in(3)}, nil)
		w.expect("own chain", false, false)
		write(w.v4, chainGrows, Effect{Commits: 1, Entries: in(1)}, func() {
			write(w.v6, chainComes+chainInNAT, Effect{Commits: 2, Entries: map[string]int{"filter": 3, "nat": 3}}, nil)
			w.expect("while a write is under way", false, false)
		})
		w.expect("both at once", false, false)
		write(w.v4, chainGoes+chainInNAT, Effect{Commits: 2, Entries: map[string]int{"filter": -4, "nat": 3}}, nil)
		w.expect("removal", false, false)
		failed := errors.New("failed")
		err := w.Write(IPv4, Effect{Commits: 2}, func() error {
			w.restore(w.v4, chainComes)
			return failed
		})
		if !errors.Is(err, failed) {
			w.Errorf("error %v", err)
		}
		w.expect("a write that failed half way", false, false)
	})
}

// What somebody else does between the beginning of a write and its end is not
// taken for a part of it.
func TestWatchSeesWhatOthersDoDuringAWrite(t *testing.T) {
	forWatches(t, func(w watched) {
		nft := w.v4.Variant == NFT
		for _, foreign := range []string{
			"*filter\n-A INPUT -j ACCEPT\nCOMMIT\n",
			"*filter\n-F KUBE-A\nCOMMIT\n",
			"*filter\n-F KUBE-A\n-X KUBE-A\nCOMMIT\n",
		} {
			w.restore(w.v4, chainComes)
			for _, f := range []Family{IPv4, IPv6} {
				_, _ = w.Changed(f) // what the next one is compared with
			}
			err := w.Write(IPv4, Effect{Commits: 1, Entries: map[string]int{"nat": 2}}, func() error {
				w.restore(w.v4, "*nat\n:KUBE-B - [0:0]\nCOMMIT\n")
				w.restore(w.v4, foreign)
				return nil
			})
			if err != nil {
				w.Error(err)
			}
			w.expect(foreign, true, nft)
			w.restore(w.v4, "*nat\n-X KUBE-B\nCOMMIT\n")
			w.expect("the chain of nat is gone", true, nft)
		}
	})
}

// A chain that somebody else empties before we do: the number of transactions is that of
// our own, so that only a doubt is left, for both families.
func TestWatchDoubtsWhatOnlyTakesAway(t *testing.T) {
	forWatches(t, func(w watched) {
		if w.v4.Variant != NFT {
			t.Skip("legacy tables have no transactions to count")
		}
		w.restore(w.v4, chainComes)
		for _, f := range []Family{IPv4, IPv6} {
			_, _ = w.Changed(f) // what the next one is compared with
		}
		err := w.Write(IPv4, Effect{Commits: 1, Doubtful: true}, func() error {
			w.restore(w.v4, "*filter\n-F\nCOMMIT\n")
			w.restore(w.v4, "*filter\n:KUBE-A - [0:0]\nCOMMIT\n")
			w.Doubt(IPv6) // too early, and not lost
			return nil
		})
		if err != nil {
			w.Error(err)
		}
		for _, f := range []Family{IPv4, IPv6} {
			select {
			case <-w.News(f):
			default:
				w.Errorf("IPv%d hears nothing", f)
			}
			if c, err := w.Changed(f); err != nil || c != (Change{Doubt: true}) {
				w.Errorf("IPv%d: %+v, %v", f, c, err)
			}
		}
	})
}

// A Watch that runs lets everybody know of what others do, and says what it knows
// of it; of our own writes it says nothing.
func TestWatchSaysWhoAndWhat(t *testing.T) {
	forWatches(t, func(w watched) {
		ctx, cancel := context.WithCancel(w.Context())
		over := make(chan struct{})
		go func() { w.Watch.Run(ctx); close(over) }()
		defer func() { cancel(); <-over }()
		for _, step := range []struct {
			text string
			lost bool
		}{
			{"*nat\n-A POSTROUTING -p tcp -j ACCEPT\n-A OUTPUT -p tcp -j ACCEPT\nCOMMIT\n", false},
			{"*nat\n-D OUTPUT 1\n-A POSTROUTING -p udp -j ACCEPT\nCOMMIT\n", true},
			{"*nat\n:KUBE-A - [0:0]\nCOMMIT\n", false},
			{"*nat\n-F\n-X\nCOMMIT\n", true},
		} {
			w.restore(w.v4, step.text)
			<-w.News(IPv4)
			c, err := w.Changed(IPv4)
			want := Change{Some: true, Lost: step.lost}
			if w.v4.Variant == NFT {
				want = Change{Some: true, Program: "iptables-nft-restore"[:15]}
			}
			if err != nil || c != want {
				w.Errorf("after %q: %+v (%v), want %+v", step.text, c, err, want)
			}
		}
		err := w.Write(IPv4, Effect{Commits: 1, Entries: map[string]int{"nat": 2}}, func() error {
			w.restore(w.v4, "*nat\n:KUBE-B - [0:0]\nCOMMIT\n")
			return nil
		})
		w.restore(w.v6, chainComes) // whose news comes after that of the write
		<-w.News(IPv6)
		if c, changed := w.Changed(IPv4); err != nil || changed != nil || c.Some != (w.v4.Variant == NFT) {
			w.Errorf("after a write of our own: %+v %v %v", c, err, changed)
		}
	})
}
