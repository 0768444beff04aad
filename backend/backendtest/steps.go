package backendtest

import (
	"context"
	"testing"

	"portolan/dataplane"
	"portolan/service"
)

// A Backend writes down what Services ask for, as agent.Backend, and is the kernel that
// holds it.
type Backend interface {
	dataplane.Kernel
	Base(service.Node) []dataplane.Object
	Render(service.Node, *service.Service) ([]dataplane.Object, error)
}

// Program has a Sync want these Services, rendered by a Backend. Nothing is written.
func Program(t testing.TB, b Backend, sync *dataplane.Sync, node service.Node, list ...*service.Service) {
	t.Helper()
	sync.Set(dataplane.Owner{}, b.Base(node))
	for _, s := range list {
		objects, err := b.Render(node, s)
		if err != nil {
			t.Fatal(err)
		}
		sync.Set(dataplane.Owner{Name: s.Name.String(), Since: s.Created}, objects)
	}
}

// Apply writes what a Sync wants. No Service may be refused.
func Apply(t testing.TB, sync *dataplane.Sync) dataplane.Report {
	t.Helper()
	r, err := sync.Apply(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, rejected := range r.Rejected {
		t.Fatalf("%s rejected: %v", rejected.Owner, rejected.Err)
	}
	return r
}

// NothingToDo checks that a new Sync, which knows nothing of earlier writes, finds that
// all of these Services is in place, and nothing else.
func NothingToDo(t testing.TB, b Backend, node service.Node, list ...*service.Service) {
	t.Helper()
	fresh := dataplane.NewSync(b)
	Program(t, b, fresh, node, list...)
	plan, err := fresh.Diff(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !plan.Empty() {
		t.Errorf("what was written is not what is read:\n%s", plan)
	}
}
