package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"portolan/kernel/conntrack"
	"portolan/service"
)

// drawService is one of a few Services that may ask for each other's addresses.
func drawService(t *rapid.T, name string) *service.Service {
	n := func(label string, max int) int { return rapid.IntRange(0, max).Draw(t, label) }
	s := &service.Service{Name: service.Name{Namespace: "default", Name: name}, Created: time.Unix(int64(n("created", 2)), 0)}
	s.ClusterIPs = addrs(fmt.Sprintf("10.96.0.%d", 1+n("clusterIP", 2)))
	if n("external", 1) == 1 {
		s.ExternalIPs = addrs(fmt.Sprintf("203.0.113.%d", 1+n("externalIP", 1)))
	}
	p := service.Port{Protocol: rapid.SampledFrom([]service.Protocol{service.UDP, service.TCP, service.SCTP}).Draw(t, "protocol"), Port: 53}
	if n("nodePort", 1) == 1 {
		p.NodePort = 30053
	}
	for i := range 4 {
		if n("state", 3) > 0 {
			p.Endpoints = append(p.Endpoints, service.Endpoint{Addr: endpoint(i), Ready: n("ready", 1) == 1, Serving: n("serving", 1) == 1})
		}
	}
	s.Ports = []service.Port{p}
	return s
}

func endpoint(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 1, byte(i)}), 53)
}

func drawFlow(t *rapid.T) conntrack.Flow {
	to := addrPort(rapid.SampledFrom([]string{"10.96.0.1:53", "10.96.0.2:53", "10.96.0.3:53", "203.0.113.1:53", "203.0.113.2:53", "192.0.2.11:30053", "192.0.2.12:30053"}).Draw(t, "to"))
	from := to
	if i := rapid.IntRange(0, 4).Draw(t, "from"); i < 4 {
		from = endpoint(i)
	}
	f := conntrack.Flow{
		Proto: rapid.SampledFrom([]uint8{conntrack.UDP, conntrack.TCP, conntrack.SCTP}).Draw(t, "proto"),
		Orig:  conntrack.Tuple{Src: addrPort("192.0.2.7:1"), Dst: to}, Reply: conntrack.Tuple{Src: from, Dst: addrPort("192.0.2.7:1")},
	}
	if rapid.Bool().Draw(t, "replied") {
		f.Status, f.State = conntrack.SeenReply, conntrack.TCPEstablished
	}
	return f
}

// TestTouchedSelectsAllThatWentStale: a flow that led somewhere and leads nowhere
// after a change is selected by the filters of the change, however few they are,
// and so it is by those of everything.
func TestTouchedSelectsAllThatWentStale(t *testing.T) {
	stale := 0
	rapid.Check(t, func(t *rapid.T) {
		x, nodePorts := NewIndex(service.IPv4), NodePortsOf(service.Node{}, service.IPv4, local)
		now := &service.Snapshot{}
		step := func() (changes []service.Change) {
			var put []*service.Service
			var gone []service.Name
			for i := range rapid.IntRange(1, 3).Draw(t, "changed") {
				if s := drawService(t, fmt.Sprintf("s%d", i)); rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
					gone = append(gone, s.Name)
				} else {
					put = append(put, s)
				}
			}
			next := now.With(service.Node{}, put, gone)
			for c := range next.Changes(now) {
				x.Change(c)
				changes = append(changes, c)
			}
			now = next
			return changes
		}
		tcpReset := rapid.Bool().Draw(t, "tcpReset")
		step()
		x.Forget()
		flows := rapid.SliceOfN(rapid.Custom(drawFlow), 1, 30).Draw(t, "flows")
		led := slices.DeleteFunc(flows, func(f conntrack.Flow) bool { return x.Judge(f, nodePorts, tcpReset) != Leads })
		filters := x.Touched(step(), tcpReset)
		if len(filters) > mostScans {
			t.Fatalf("%d filters", len(filters))
		}
		for _, f := range led {
			if x.Judge(f, nodePorts, tcpReset) == Leads {
				continue
			}
			stale++
			for name, list := range map[string][]conntrack.Filter{"the change": filters, "everything": x.Everything(tcpReset)} {
				if name == "the change" && f.Proto == conntrack.TCP && f.Translated() && !tcpReset {
					continue // left to the next full pass
				}
				if !slices.ContainsFunc(list, func(filter conntrack.Filter) bool { return filter.Match(f) }) {
					t.Fatalf("%v leads nowhere, and no filter of %s selects it: %+v", f, name, list)
				}
			}
		}
	})
	if stale == 0 {
		t.Error("no flow ever led nowhere")
	}
}

// TestTouched: what is asked of the kernel after single changes.
func TestTouched(t *testing.T) {
	bare := func(edit func(*service.Service)) *service.Service {
		s := dns()
		s.ExternalIPs, s.LoadBalancerIPs = nil, nil
		s.Ports = s.Ports[2:]
		s.Ports[0].NodePort = 0
		edit(s)
		return s
	}
	same := bare(func(*service.Service) {})
	without := func(list ...int) *service.Service {
		return bare(func(s *service.Service) {
			for _, i := range list {
				s.Ports[0].Endpoints = slices.Delete(s.Ports[0].Endpoints, i, i+1)
			}
		})
	}
	ip := same.ClusterIPs[0]
	udp := conntrack.Filter{Proto: conntrack.UDP, To: ip, ToPort: 53}
	one := conntrack.Filter{Proto: conntrack.UDP, From: addrPort("10.244.1.1:53").Addr(), FromPort: 53}
	two := one
	two.From = addrPort("10.244.1.2:53").Addr()
	for _, c := range []struct {
		name    string
		changes []service.Change
		want    []conntrack.Filter
	}{
		{"nothing of this family", []service.Change{{Old: same, New: without(3)}}, nil},
		{"an endpoint more", []service.Change{{Old: without(0), New: same}}, nil},
		{"an endpoint less", []service.Change{{Old: same, New: without(0)}}, []conntrack.Filter{one}},
		{"two endpoints less", []service.Change{{Old: same, New: without(1, 0)}}, []conntrack.Filter{one, two}},
		{"an endpoint not ready", []service.Change{{Old: same, New: bare(func(s *service.Service) { s.Ports[0].Endpoints[0] = service.Endpoint{Addr: addrPort("10.244.1.1:53")} })}}, []conntrack.Filter{one}},
		{"the first endpoint", []service.Change{{Old: bare(func(s *service.Service) { s.Ports[0].Endpoints = nil }), New: same}}, []conntrack.Filter{udp}},
		{"a new Service", []service.Change{{New: same}}, []conntrack.Filter{udp}},
		{"an annotation", []service.Change{{Old: same, New: bare(func(s *service.Service) { s.Triggers = []time.Time{time.Unix(1, 0)} })}}, nil},
		{"all addresses", []service.Change{{New: dns()}}, []conntrack.Filter{{Proto: conntrack.TCP, Unreplied: true}, {Proto: conntrack.UDP}, {Proto: conntrack.SCTP}}},
	} {
		if got := NewIndex(service.IPv4).Touched(c.changes, false); !sameFilters(got, c.want) {
			t.Errorf("%s: %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

func sameFilters(a, b []conntrack.Filter) bool {
	inB := func(f conntrack.Filter) bool { return slices.Contains(b, f) }
	return len(a) == len(b) && !slices.ContainsFunc(a, func(f conntrack.Filter) bool { return !inB(f) })
}
