package iptables

import (
	"cmp"
	"slices"
	"testing"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/service"
)

// TestDropped: of every rule that lets something not through it is known whose it is and
// why, in the form in which the kernel has it; before there are rules nothing is dropped.
func TestDropped(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *iptables.Tool) {
		b := backendFor(tool)
		if list, err := b.Dropped(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("of nothing: %v, %v", list, err)
		}
		node, services := everyShape(b.options.Family)
		s := dataplane.NewSync(b)
		fill(t, s, b, node, services)
		_, err := s.Apply(t.Context())
		must(t, err)
		got, err := b.Dropped(t.Context())
		must(t, err)
		want := wantDropped(node, services, b.options.Family)
		for _, list := range [][]service.Dropped{got, want} {
			slices.SortFunc(list, func(a, b service.Dropped) int {
				return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Reason, b.Reason))
			})
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

// wantDropped is what the frontends of Services do not let through, and the one rule
// about invalid packets.
func wantDropped(node service.Node, services []*service.Service, f service.Family) []service.Dropped {
	out := []service.Dropped{{Reason: service.DropInvalid}}
	for _, svc := range services {
		for _, pf := range service.Decide(node, svc, f) {
			for _, front := range pf.Frontends {
				d := service.Dropped{Addr: front.Addr, Protocol: front.Protocol, Port: front.Port}
				if r := front.Route(service.FromOutside); r.Verdict != service.Forward {
					d.Reason = service.DropNoEndpoints
					if r.Elsewhere {
						d.Reason = service.DropNoLocalEndpoints
					}
					out = append(out, d)
				}
				if limited(&front) {
					d.Reason = service.DropSourceRange
					out = append(out, d)
				}
			}
		}
	}
	return out
}

func TestDroppedBy(t *testing.T) {
	for rule, want := range map[string]service.Dropped{
		`-A KUBE-SERVICES -d 10.96.0.9/32 -p tcp -m comment --comment "default/a:p has no endpoints" -m tcp --dport 80 -c 12 720 -j REJECT --reject-with icmp-port-unreachable`: {
			Addr: addr("10.96.0.9"), Protocol: service.TCP, Port: 80, Reason: service.DropNoEndpoints, Packets: 12},
		`-A KUBE-EXTERNAL-SERVICES -p udp -m addrtype --dst-type LOCAL -m udp --dport 30053 -c 1 28 -j DROP`: {
			Protocol: service.UDP, Port: 30053, Reason: service.DropNoLocalEndpoints, Packets: 1},
		`-A KUBE-EXTERNAL-SERVICES -d 10.96.0.9/32 -p tcp -m comment --comment "a has no local endpoints" -m tcp --dport 80 -c 2 720 -j REJECT --reject-with icmp-port-unreachable`: {
			Addr: addr("10.96.0.9"), Protocol: service.TCP, Port: 80, Reason: service.DropNoLocalEndpoints, Packets: 2},
	} {
		if got, is := droppedBy(filterServices, rule); !is || got != want {
			t.Errorf("%s\nis %v, %t; want %v", rule, got, is, want)
		}
	}
	for _, rule := range []string{
		"-A KUBE-SERVICES -m addrtype --src-type LOCAL -c 9 9 -j KUBE-EXTERNAL-SERVICES",
		"-A KUBE-SERVICES -c", "-A KUBE-SERVICES -d here -c 1 1 -j DROP", "-A KUBE-SERVICES -p tcp --dport 70000 -c 1 1 -j DROP", "",
	} {
		if got, is := droppedBy(filterServices, rule); is {
			t.Errorf("%q is %v", rule, got)
		}
	}
}
