package dataplane

import (
	"context"
	"iter"
)

// Kernel is where the objects live.
type Kernel interface {
	// Observe streams the objects that this kernel owns, with bodies as Render
	// writes them, never all in memory. Objects of a container come together
	// and in their order; in a container that is written as a whole the order
	// is the Rank and the Name is empty, in a keyed one the Key is the wanted
	// one. A claim says that a container exists, with the Rank Keyed if it is
	// keyed; it may come earlier, and containers without any line are seen by
	// it alone.
	Observe(context.Context) iter.Seq2[Object, error]
	// Apply is the only method that writes. After an error nothing is known
	// about what was written. An error that is or wraps a *Refusal says that
	// the content is to blame and not the circumstances.
	Apply(context.Context, Plan) error
	// Changes sends when somebody else changed something. It ends with the context.
	Changes(context.Context) <-chan Notice
}

// Refusal says that the kernel does not take what a Plan asks for.
type Refusal struct {
	// Key is the object at fault; only the Container when that is all that is
	// known, zero when nothing is.
	Key Key
	Err error
}

func (r *Refusal) Error() string { return r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }
