package iptables

import (
	"testing"
	"testing/synctest"
	"time"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/service"
)

// Whatever a family writes, neither it nor the other one takes it for a change
// by somebody else; what somebody else does while we write is one.
func TestOwnWritesWakeNeitherFamily(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *iptables.Tool) {
		other := iptables.NewTool(map[iptables.Family]iptables.Family{4: 6, 6: 4}[tool.Family], tool.Variant)
		other.Env = tool.Env
		watch, err := iptables.NewWatch(tool, other)
		must(t, err)
		defer watch.Close()
		b := backendFor(tool)
		b.options.Watch = watch
		quiet := func(what string) {
			t.Helper()
			for _, f := range []iptables.Family{tool.Family, other.Family} {
				if changed, err := watch.Changed(f); changed.Some || err != nil {
					t.Errorf("%s: IPv%d changed: %v %v", what, f, changed, err)
				}
			}
		}
		node, services := everyShape(b.options.Family)
		s := dataplane.NewSync(b)
		write := func(what string, n service.Node, list []*service.Service) {
			t.Helper()
			fill(t, s, b, n, list)
			_, err := s.Apply(t.Context())
			must(t, err)
			quiet(what)
		}
		write("start", node, services)
		for what, n := range nodesOf(node) {
			write(what, n, services)
		}
		write("back", node, services)
		for _, svc := range services {
			for i := range svc.Ports {
				changed := *svc
				changed.Ports = append([]service.Port(nil), svc.Ports...)
				changed.Ports[i].Endpoints = nil
				write("no endpoints of "+svc.Name.Name, node, []*service.Service{&changed})
			}
			write("endpoints of "+svc.Name.Name, node, []*service.Service{svc})
		}
		must(t, tool.Restore(t.Context(), []byte("*nat\n:KUBE-SERVICES - [0:0]\n-X KUBE-PROXY-CANARY\nCOMMIT\n")))
		if changed, err := watch.Changed(tool.Family); !changed.Some || err != nil {
			t.Errorf("flush by others: %v %v", changed, err)
		}
		_, _ = watch.Changed(other.Family)
		if r, err := s.Reconcile(t.Context()); err != nil || r.Writes != 1 {
			t.Errorf("repair: %+v %v", r, err)
		}
		quiet("repair")
		for _, svc := range services {
			s.Remove(svc.Name.String())
		}
		write("removal", node, nil)
	})
}

// Where changes cannot be seen, that is said once, and looks go on at a slow
// pace.
func TestChangesGoOnWithoutAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch, err := iptables.NewWatch() // of no family
		must(t, err)
		var troubles []error
		b := New(Options{Family: service.IPv4, Tool: iptables.NewTool(iptables.IPv4, iptables.NFT), Watch: watch,
			Trouble: func(err error) { troubles = append(troubles, err) }})
		start := time.Now()
		signal := b.Changes(t.Context())
		for range 3 {
			<-signal
		}
		if took := time.Since(start); took < 3*blindSignal || took > 4*blindSignal || len(troubles) != 1 {
			t.Errorf("three signals in %v, troubles %v", took, troubles)
		}
	})
}
