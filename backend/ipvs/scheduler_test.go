package ipvs

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan/dataplane"
	"portolan/kernel/ipvs"
	"portolan/service"
)

// TestSchedulerOfAService: a Service changes its scheduler and its weights, and keeps
// its real servers meanwhile; one that the kernel lacks changes nothing, and is named.
func TestSchedulerOfAService(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.Family)
	sync := dataplane.NewSync(b)
	k := b.options.Kernel.Servers
	web := func(scheduler string, weight service.Weight) *service.Service {
		s := f.Web(1, 2)
		s.Scheduler = scheduler
		s.Ports[0].Endpoints[0].Weight = weight
		return s
	}
	there := func() string {
		t.Helper()
		list, err := k.Servers()
		i := slices.IndexFunc(list, func(s ipvs.Server) bool { return s.ID.Addr == netip.AddrPortFrom(at(f.Cluster, 1), 80) })
		if err != nil || i < 0 {
			t.Fatalf("%+v, %v", list, err)
		}
		return strings.Join(append([]string{list[i].Scheduler}, reals(t, b, ipvs.TCP, at(f.Cluster, 1), 80)...), " ")
	}
	for _, step := range []struct {
		scheduler string
		weight    service.Weight
		want      string
		writes    int // of virtual and real servers
	}{
		{"", 0, "rr 10.244.1.1:8080 1 10.244.2.2:8080 1", 3},
		{"sh", 0, "sh 10.244.1.1:8080 1 10.244.2.2:8080 1", 1},
		{"", 3, "wrr 10.244.1.1:8080 3 10.244.2.2:8080 1", 2},
		{"", 5, "wrr 10.244.1.1:8080 5 10.244.2.2:8080 1", 1},
		{"", 0, "rr 10.244.1.1:8080 1 10.244.2.2:8080 1", 2},
	} {
		before := k.Writes
		program(t, b, sync, self(f), web(step.scheduler, step.weight), f.Web(2, 2))
		apply(t, sync)
		if before == 0 {
			step.writes += 3 // of the other Service
		}
		if got := there(); got != step.want || k.Writes-before != step.writes {
			t.Errorf("%+v: %s, %d writes", step, got, k.Writes-before)
		}
		nothingToDo(t, b, self(f), web(step.scheduler, step.weight), f.Web(2, 2))
	}
	program(t, b, sync, self(f), web("nosuch", 0), f.Web(2, 3))
	r, err := sync.Apply(t.Context())
	if err != nil || len(r.Rejected) != 1 || r.Rejected[0].Owner != "default/web-1" || !strings.Contains(r.Rejected[0].Err.Error(), "lacks the scheduler nosuch (module ip_vs_nosuch)") {
		t.Errorf("rejected: %+v, %v", r.Rejected, err)
	}
	if got, want := there(), "rr 10.244.1.1:8080 1 10.244.2.2:8080 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := reals(t, b, ipvs.TCP, at(f.Cluster, 2), 80); len(got) != 3 {
		t.Errorf("the other Service: %v", got)
	}
}
