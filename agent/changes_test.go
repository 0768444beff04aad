package agent

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"portolan/dataplane"
	"portolan/service"
)

// TestChanges: Services and endpoints are counted apart, and what changed back is
// not pending.
func TestChanges(t *testing.T) {
	svc := func(name string, port uint16, endpoints ...string) *service.Service {
		p := service.Port{Port: port, Protocol: service.TCP}
		for _, e := range endpoints {
			p.Endpoints = append(p.Endpoints, service.Endpoint{Addr: netip.MustParseAddrPort(e)})
		}
		return &service.Service{Name: service.Name{Namespace: "default", Name: name}, Ports: []service.Port{p}}
	}
	empty := &service.Snapshot{}
	one := empty.With(service.Node{}, []*service.Service{svc("a", 80, "10.0.0.1:80"), svc("b", 80)}, nil)
	for _, tt := range []struct {
		name          string
		before, after *service.Snapshot
		want          Changes
	}{
		{"all is new", nil, one, Changes{2, 1}},
		{"nothing", one, one, Changes{}},
		{"not known", one, nil, Changes{}},
		{"a Service", one, one.With(service.Node{}, []*service.Service{svc("b", 81)}, nil), Changes{1, 0}},
		{"endpoints", one, one.With(service.Node{}, []*service.Service{svc("b", 80, "10.0.0.2:80")}, nil), Changes{0, 1}},
		{"both", one, one.With(service.Node{}, []*service.Service{svc("a", 81)}, nil), Changes{1, 1}},
		{"gone", one, one.With(service.Node{}, nil, []service.Name{{Namespace: "default", Name: "a"}}), Changes{1, 1}},
		{"changed back", one, one.With(service.Node{}, []*service.Service{svc("b", 81)}, nil).With(service.Node{}, []*service.Service{svc("b", 80)}, nil), Changes{}},
	} {
		if got := changesOf(tt.before, tt.after); got != tt.want {
			t.Errorf("%s: %+v, not %+v", tt.name, got, tt.want)
		}
	}
}

// TestPending: what was published waits until it is written, in that family.
func TestPending(t *testing.T) {
	b := newFakeBackend()
	var free atomic.Bool
	b.Refuse = func(dataplane.Plan) error {
		if free.Load() {
			return nil
		}
		return errors.New("no lock")
	}
	run(t, b, options(), func(a *Agent) {
		a.Publish((&service.Snapshot{}).With(service.Node{}, []*service.Service{svc("a", "10.0.0.1")}, nil))
		synctest.Wait()
		if got := a.Pending(service.IPv4); got != (Changes{Services: 1}) || a.Written(service.IPv4) != nil {
			t.Errorf("while writes fail: %+v", got)
		}
		free.Store(true)
		time.Sleep(time.Minute)
		if got := a.Pending(service.IPv4); got != (Changes{}) || a.Written(service.IPv4).Len() != 1 || a.Changed() != (Changes{Services: 1}) {
			t.Errorf("written: %+v, %+v", got, a.Changed())
		}
	})
}

// A restart that finds the rules in force says so once; the first run says what it wrote.
func TestARestartWithNothingToWriteIsSaid(t *testing.T) {
	b := newFakeBackend()
	snapshot := (&service.Snapshot{}).With(service.Node{}, []*service.Service{svc("a", "10.0.0.1")}, nil)
	for _, want := range []string{`msg=synced`, `msg="nothing to write: the rules that are there are what is wanted"`} {
		var log strings.Builder
		o := options()
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		run(t, b, o, func(a *Agent) {
			a.Publish(snapshot)
			pass(3 * o.FullPeriod)
		})
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, want) {
			t.Errorf("log %q, want one line with %s", text, want)
		}
	}
}
