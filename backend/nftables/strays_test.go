package nftables

import (
	"net/netip"
	"slices"
	"testing"

	"portolan/dataplane"
	"portolan/service"
)

// TestClientsOfAKilledProcess: who came to an endpoint that went, when the process was
// killed or its write failed, moves on after the next look; others stay.
func TestClientsOfAKilledProcess(t *testing.T) {
	const one, two = "default/web-1:http", "default/web-2:http"
	for _, f := range families {
		another := func() *service.Service { // of as many endpoints, so that no slot is left over
			s := sticky(f, 1, 3)
			s.Ports[0].Endpoints[2].Addr = netip.AddrPortFrom(at(f.Pod, 77), 8080)
			return s
		}
		for what, now := range map[string]*service.Service{"fewer": sticky(f, 1, 2), "another": another(), "more": sticky(f, 1, 4)} {
			for _, killed := range []bool{false, true} {
				t.Run(f.Family.String()+" "+what, func(t *testing.T) {
					c := newClientsStand(t, f)
					c.write(sticky(f, 1, 3), sticky(f, 2, 3))
					c.write(now)
					for i, e := range f.Endpoints(3, 8080) {
						remember(t, c.b, one, at(f.External, i+1), e.Addr)
						remember(t, c.b, two, at(f.External, i+1), e.Addr)
					}
					c.all = remembered(t, c.b)
					c.b.stop() // what waits is forgotten
					if killed {
						c.b = live(t, f.Family)
						c.sync = dataplane.NewSync(c.b)
					} else {
						c.b.doubtful = true
					}
					program(t, c.b, c.sync, nodeOf(f), now, sticky(f, 2, 3))
					if _, err := c.sync.Reconcile(t.Context()); err != nil {
						t.Fatal(err)
					}
					settle(t, c.b)
					var gone []string
					if third := f.Endpoints(3, 8080)[2]; !slices.Contains(now.Ports[0].Endpoints, third) {
						gone = append(gone, clientText(one, third.Addr))
					}
					c.check("after a look", gone...)
				})
			}
		}
	}
}

// TestClientsOfAServiceMadeAnew: a Service that was deleted and made again before it was
// written, with another address and other endpoints, has no client at one that is gone.
func TestClientsOfAServiceMadeAnew(t *testing.T) {
	const name = "default/web-1:http"
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			c := newClientsStand(t, f)
			c.write(sticky(f, 1, 3))
			for i, e := range f.Endpoints(3, 8080) {
				remember(t, c.b, name, at(f.External, i+1), e.Addr)
			}
			c.all = remembered(t, c.b)
			anew := sticky(f, 1, 2)
			anew.ClusterIPs, anew.Ports[0].NodePort = []netip.Addr{at(f.Cluster, 9)}, 30009
			c.write(anew)
			c.check("made anew", clientText(name, f.Endpoints(3, 8080)[2].Addr))
			more := sticky(f, 1, 2)
			more.ClusterIPs, more.Ports[0].NodePort = anew.ClusterIPs, 30009
			more.ExternalIPs = []netip.Addr{at(f.External, 99)}
			c.write(more)
			settle(t, c.b)
			c.check("with one address more")
		})
	}
}

// TestClientsOfAnEndpointThatComesBack: clients that choose an endpoint after it came back
// are not forgotten by what was to be removed after it went.
func TestClientsOfAnEndpointThatComesBack(t *testing.T) {
	const name = "default/web-1:http"
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			c := newClientsStand(t, f)
			for _, endpoints := range []int{3, 2, 3} {
				c.write(sticky(f, 1, endpoints))
			}
			remember(t, c.b, name, at(f.External, 1), f.Endpoints(3, 8080)[2].Addr)
			c.all = remembered(t, c.b)
			settle(t, c.b)
			c.check("later")
		})
	}
}

// TestClientForAllOthers: an element for all other clients, which others made, is no client.
func TestClientForAllOthers(t *testing.T) {
	c := newClientsStand(t, families[0])
	c.write(sticky(c.f, 1, 3))
	load(t, "add element ip portolan affinity { * timeout 1h : 10.244.9.9 . 8080 }")
	c.write(sticky(c.f, 1, 2))
	c.restart()
	c.write(sticky(c.f, 1, 2))
	settle(t, c.b)
	nothingToDo(t, c.b, nodeOf(c.f), sticky(c.f, 1, 2))
}

// TestClientsOfAWriteThatWasKilled: wherever a process was killed while it wrote that a
// Service has another protocol and an endpoint less, the next one forgets whom it has to.
func TestClientsOfAWriteThatWasKilled(t *testing.T) {
	const name = "default/web-1:http"
	for _, f := range families {
		for transactions := range 12 {
			t.Run(f.Family.String(), func(t *testing.T) {
				c := newClientsStand(t, f)
				c.b.batchLimit = 1
				h := &history{dies: -1}
				c.sync = dataplane.NewSync(mortal{c.b, h})
				c.write(sticky(f, 1, 3))
				for i, e := range f.Endpoints(3, 8080) {
					remember(t, c.b, name, at(f.External, i+1), e.Addr)
				}
				c.all = remembered(t, c.b)
				now := sticky(f, 1, 2)
				now.Ports[0].Protocol = service.UDP
				program(t, c.b, c.sync, nodeOf(f), now)
				h.dies = transactions
				_, _ = c.sync.Apply(t.Context()) // ends there, or comes to its end
				c.b.stop()
				c.restart()
				c.write(now)
				settle(t, c.b)
				c.check("after a look", clientText(name, f.Endpoints(3, 8080)[2].Addr))
			})
		}
	}
}
