package verify

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"portolan/service"
)

// claim is an address and port that a Service asks for. A NodePort has no address.
type claim struct {
	family service.Family
	addr   netip.Addr
	port   uint16
	proto  service.Protocol
}

func claimOf(f service.Family, fe service.Frontend) claim {
	return claim{f, fe.Addr, fe.Port, fe.Protocol}
}

// claimant is a Service port that has a claim.
type claimant struct {
	name  service.PortName
	kind  service.Kind
	since time.Time
}

// before tells who of two wins: the older Service, then the lesser name.
func (c claimant) before(o claimant) int {
	return cmp.Or(c.since.Compare(o.since), c.name.Service.Compare(o.name.Service), strings.Compare(c.name.Port, o.name.Port))
}

// claims lists who asks for what; several for one claim are sorted, the winner
// first.
func (w *world) claims() map[claim][]claimant {
	out := map[claim][]claimant{}
	for s := range w.in.Services.All() {
		for f, pf := range w.decided(s) {
			for _, fe := range pf.Frontends {
				key := claimOf(f, fe)
				out[key] = append(out[key], claimant{pf.Name, fe.Kind, s.Created})
			}
		}
	}
	for _, list := range out {
		if len(list) > 1 {
			slices.SortFunc(list, claimant.before)
		}
	}
	return out
}

// findWinners tells which Service port answers where several ask.
func (w *world) findWinners() map[claim]service.PortName {
	out := map[claim]service.PortName{}
	for key, list := range w.claims() {
		if len(list) > 1 {
			out[key] = list[0].name
		}
	}
	return out
}

// won yields the frontends of a port but for those where another Service answers, which
// checkClaims tells.
func (w *world) won(f service.Family, pf service.PortFrontends) iter.Seq[service.Frontend] {
	return func(yield func(service.Frontend) bool) {
		for _, fe := range pf.Frontends {
			if winner, contested := w.winners[claimOf(f, fe)]; contested && winner != pf.Name {
				continue
			}
			if !yield(fe) {
				return
			}
		}
	}
}

// checkClaims finds addresses that two Services ask for.
func checkClaims(w *world) (out []Finding) {
	if w.in.Services == nil {
		return nil
	}
	claims := w.claims()
	for _, key := range slices.SortedFunc(maps.Keys(claims), func(a, b claim) int {
		return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.port, b.port), strings.Compare(string(a.proto), string(b.proto)))
	}) {
		list := claims[key]
		if len(list) < 2 || list[0].name == list[len(list)-1].name {
			continue
		}
		object := fmt.Sprintf("NodePort %d/%s", key.port, key.proto)
		if key.addr.IsValid() {
			object = netip.AddrPortFrom(key.addr, key.port).String() + "/" + string(key.proto)
		}
		var losers []string
		for _, c := range list[1:] {
			losers = append(losers, c.name.String())
		}
		out = append(out, Finding{
			Code: AddressConflict, Severity: Warning, Object: object,
			Actual:   fmt.Sprintf("%s has it as %s, %s asks for it too", list[0].name, list[0].kind, strings.Join(losers, ", ")),
			Expected: "one Service for each address and port",
			Fix:      "give " + losers[0] + " another address or port; until then the older Service answers",
			Affected: losers,
		})
	}
	return out
}
