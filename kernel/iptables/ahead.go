package iptables

import (
	"context"
	"iter"
	"sync"
	"time"
)

// aheadFor is how long a listing that began ahead waits to be taken. What the program
// has read of the tables stays in its memory meanwhile.
const aheadFor = 10 * time.Second

// Ahead is a listing of tables that began before anybody needs it: with 10,000 Services
// the program takes half a second and more until it says the first word. The zero Ahead
// has none.
type Ahead struct {
	mu   sync.Mutex
	from *listing // nil when there is none, or it was taken
	eye  *eye
	seen sight // when it began
	late *time.Timer
}

// Begin begins a listing of the tables, in the network namespace of the caller, unless
// one of them is not loaded. It ends when it is not taken soon, and with ctx.
func (a *Ahead) Begin(ctx context.Context, t *Tool, tables ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, table := range tables {
		if !t.Loaded(table) {
			return
		}
	}
	e, err := openEye(t.Family, t.Variant)
	if err != nil {
		return // whoever lists the tables is told why
	}
	seen, err := e.look()
	if err == nil {
		a.from, err = t.begin(ctx, tables)
	}
	if err != nil {
		_ = e.close() // nothing depends on it
		return
	}
	a.eye, a.seen = e, seen
	a.late = time.AfterFunc(aheadFor, a.drop)
}

// Take returns what SaveAll would have said when the listing began, once, or nil: when
// there is none, it is too old, or somebody has written to the tables since.
func (a *Ahead) Take() iter.Seq2[string, error] {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.from == nil || !a.late.Stop() {
		return nil
	}
	now, err := a.eye.look()
	if err != nil || now != a.seen {
		a.end()
		return nil
	}
	from := a.from
	a.from = nil
	_ = a.eye.close() // nothing depends on it
	return from.wantedLines
}

func (a *Ahead) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.from != nil {
		a.end()
	}
}

func (a *Ahead) end() {
	a.from.stop()
	a.from = nil
	_ = a.eye.close() // nothing depends on it
}
