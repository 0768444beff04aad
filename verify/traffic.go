package verify

import (
	"fmt"
	"iter"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"

	"portolan/netfilter"
	"portolan/service"
)

// checkTraffic follows every kind of client to every frontend.
func checkTraffic(w *world) []Finding {
	if w.in.Services == nil || len(w.proxies) == 0 {
		return nil
	}
	var found trouble
	eachService(w.in.Services, w.checkService, found.merge)
	return found.report(&w.report)
}

// eachService does work for every Service, on all processors. Every worker has a
// result of its own, which merge adds to the others.
func eachService[T any](s *service.Snapshot, do func(*service.Service, *T), merge func(*T)) {
	work := make(chan *service.Service)
	var group sync.WaitGroup
	var mutex sync.Mutex
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			var own T
			for s := range work {
				do(s, &own)
			}
			mutex.Lock()
			defer mutex.Unlock()
			merge(&own)
		})
	}
	for s := range s.All() {
		work <- s
	}
	close(work)
	group.Wait()
}

// checkService tries all frontends of one Service.
func (w *world) checkService(s *service.Service, t *trouble) {
	if w.nodeUnknown() && (s.ExternalPolicy == service.Local || s.InternalPolicy == service.Local) {
		return // which endpoints are on this node is not known, see checkNodeName
	}
	for f, pf := range w.decided(s) {
		t.ports++
		for fe := range w.won(f, pf) {
			for _, to := range w.targets(f, fe) {
				w.checkTarget(f, pf, to, t)
			}
		}
	}
}

// decided yields what each port of a Service gets on this node, in each family that the
// host has.
func (w *world) decided(s *service.Service) iter.Seq2[service.Family, service.PortFrontends] {
	return func(yield func(service.Family, service.PortFrontends) bool) {
		for _, f := range w.families {
			for _, pf := range service.Decide(w.in.Services.Node, s, f) {
				if !yield(f, pf) {
					return
				}
			}
		}
	}
}

// checkTarget lets every kind of client call one address and port, and holds what becomes
// of it against the Route. All of it is traced tersely; only what is wrong is traced
// again with every step, for the Finding. In ipvs mode kube-proxy itself does otherwise
// than Services ask in some cases, which are no fault of this host.
func (w *world) checkTarget(f service.Family, pf service.PortFrontends, to target, t *trouble) {
	row := Row{Service: pf.Name.String(), Kind: to.fe.Kind.String(), Frontend: to.to.String() + "/" + string(to.fe.Protocol)}
	proto, _ := netfilter.ProtoByName(string(to.fe.Protocol))
	for _, c := range w.callers(f, pf, to) {
		one := call{client: c, target: to, flow: w.flow(c, to.to, proto)}
		one.want = w.expect(&to.fe, c, one.flow.Src)
		one.answer = w.terse.Trace(one.flow)
		t.flows++
		if !one.answer.Certain() {
			t.uncertain++
		}
		t.assumed.add(one.answer.Assumptions)
		d, ok := w.judge(&one)
		if !ok { // once more, with all that a finding says
			one.answer = w.in.Tracer.Trace(one.flow)
			d, ok = w.judge(&one)
		}
		if !ok && w.mode() == "ipvs" {
			if other := w.asIPVS(pf, one); !sameWant(other.want, one.want) {
				otherwise, fine := w.judge(&other)
				switch {
				case fine:
					ok = true
				case w.proxy.Name != portolan: // which does as Services ask in this mode, too
					one, d = other, otherwise
				}
			}
		}
		row.Cells = append(row.Cells, Cell{Client: c.name, Verdict: verdictText(&one, d, ok), OK: ok, Sure: one.answer.Certain()})
		if !ok {
			t.add(w, pf, &one, d)
		}
	}
	t.rows = append(t.rows, row)
}

// sameWant tells whether two expectations ask the same of the host.
func sameWant(a, b expectation) bool {
	return a.Verdict == b.Verdict && a.Masquerade == b.Masquerade && a.closed == b.closed && slices.EqualFunc(a.Endpoints, b.Endpoints, func(x, y service.Endpoint) bool { return x.Addr == y.Addr })
}

// callers are all clients of a target: those that every frontend has, one in a
// source range, and endpoints that call themselves.
func (w *world) callers(f service.Family, pf service.PortFrontends, to target) []client {
	var out []client
	for _, c := range w.common[f] {
		if c.away && to.fe.Kind == service.ClusterIP || to.to.Addr().IsLoopback() && c.class != service.FromHost {
			continue // their own node translates it
		}
		out = append(out, c)
	}
	if to.to.Addr().IsLoopback() {
		return out
	}
	for _, p := range to.fe.SourceRanges {
		if c, ok := w.outsider(clientInRange, p); ok {
			out = append(out, c)
			break
		}
	}
	var self []netip.Addr
	for _, e := range pf.Port.Endpoints {
		a := e.Addr.Addr()
		if service.FamilyOf(a) == f && e.LocalTo(w.in.Services.Node.Name) && w.isPodHere(a) && !slices.Contains(self, a) {
			self = append(self, a)
			out = append(out, client{name: clientSelf, class: w.classOf(a, ""), src: a})
		}
	}
	return out
}

// isPodHere tells whether an address is that of a pod whose packets come to this
// host first.
func (w *world) isPodHere(a netip.Addr) bool {
	local, _ := w.fib.Local(a)
	return !local && w.isNear(a)
}

// verdictText is the short form of what becomes of a call.
func verdictText(c *call, d difference, ok bool) string {
	if !ok {
		return string(d.code)
	}
	if c.want.Verdict != service.Forward {
		return c.want.Verdict.String()
	}
	text := fmt.Sprintf("%d endpoints", len(c.want.Endpoints))
	if len(c.want.Endpoints) == 1 {
		text = "1 endpoint"
	}
	if c.want.Masquerade {
		text += ", masqueraded"
	}
	return text
}

// expectedText says what should become of a call.
func expectedText(c *call) string {
	if c.want.Verdict != service.Forward {
		return fmt.Sprintf("%s: %s", c.want.Verdict, c.want.Reason)
	}
	var list []string
	for _, e := range c.want.Endpoints {
		list = append(list, e.Addr.String())
	}
	text := "to " + some(list)
	if c.want.Masquerade || c.client.name == clientSelf {
		text += " from an address of this node"
	} else {
		text += " from the client's own address"
	}
	return text + ": " + strings.TrimSpace(c.want.Reason)
}
