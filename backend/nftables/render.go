package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan/dataplane"
	"portolan/service"
)

// Render returns the objects of one Service in this family. The error names what
// cannot be written.
func (b *Backend) Render(node service.Node, svc *service.Service) ([]dataplane.Object, error) {
	if err := checkText(node, svc); err != nil {
		return nil, err
	}
	s := newSheet()
	pods := b.podMatch(node)
	for _, pf := range service.Decide(node, svc, b.options.Family) {
		for _, f := range pf.Frontends {
			r := frontend{sheet: s, b: b, f: f, pods: pods}
			if err := r.write(); err != nil {
				s.end()
				return nil, fmt.Errorf("nftables: render %s: %w", svc.Name, err)
			}
		}
		b.hairpins(s, node, pf)
	}
	return s.objects(), nil
}

// frontend writes the elements of one frontend.
type frontend struct {
	*sheet
	b    *Backend
	f    service.Frontend
	pods string
	sep  string // before the next piece of the body
}

// mostSlots is how many slots a list has room for.
const mostSlots = localSlots

// write adds the frontend; see the constant frontends for its form.
func (r *frontend) write() error {
	k, lists, forwards := balancerOf(r.f, r.pods)
	if n := max(k.all, k.here); n > mostSlots {
		return fmt.Errorf("%d endpoints of port %s, each as often as its weight; at most %d fit", n, r.f.PortName, mostSlots)
	}
	scope, learns := "", learner{}
	if forwards && k.affine {
		if r.b.words.byPort {
			k.ports = portsOf(lists[:]...)
		}
		learns = learner{seconds(r.f.Affinity), k.ports}
		scope = scopeOf(r.f, learns)
	}
	r.open(frontends)
	r.frontendKey()
	r.named()
	r.sep = " : "
	var shared structure
	if forwards {
		shared = r.b.chainsOf(k)
		r.add("goto ", shared.entry)
	}
	switch v := r.f.Route(service.FromOutside).Verdict; v {
	case service.Forward:
	case service.Reject:
		r.add("reject")
	case service.Drop:
		r.add("drop")
	default:
		panic(fmt.Sprintf("nftables: unknown verdict %v", v))
	}
	if forwards {
		r.add(shared.slots, " ")
		r.endpoints(lists[0])
		if k.local && k.here > 0 {
			r.text = append(r.text, " | "...)
			r.endpoints(lists[1])
		}
	}
	r.ranges()
	if scope != "" {
		r.add("scope ", scope)
	}
	r.close()
	r.share(shared)
	if scope != "" {
		r.element(scopes, scope)
		r.share(r.b.affinityObjects(learns))
	}
	if r.f.Kind == service.ClusterIP {
		r.open("set/" + clusterIPs)
		r.text = r.f.Addr.AppendTo(r.text)
		r.named()
		r.close()
	}
	return nil
}

// add begins the next piece of the body.
func (r *frontend) add(words ...string) {
	r.text = append(r.text, r.sep...)
	for _, w := range words {
		r.text = append(r.text, w...)
	}
	r.sep = "; "
}

// frontendKey writes what a frontend is known by.
func (r *frontend) frontendKey() {
	if r.f.Kind != service.NodePort {
		r.text = append(r.f.Addr.AppendTo(r.text), " . "...)
	}
	r.text = append(append(r.text, r.f.Protocol...), " . "...)
	r.text = strconv.AppendUint(r.text, uint64(r.f.Port), 10)
}

// endpoints writes a list of slots, which are those from 0 on, or from localSlots on.
func (r *frontend) endpoints(list []service.Endpoint) {
	for i, e := range list {
		if i > 0 {
			r.text = append(r.text, ", "...)
		}
		r.text = e.Addr.Addr().AppendTo(r.text)
		r.text = append(r.text, " . "...)
		r.text = strconv.AppendUint(r.text, uint64(e.Addr.Port()), 10)
	}
}

// ranges writes who may use the frontend, where that is not everybody. A range that
// lies in another is left out: the kernel takes no overlaps. A range that is everybody
// limits nobody. Where there is nothing to protect everybody is refused, as in
// iptables mode.
func (r *frontend) ranges() {
	if r.f.Route(service.FromOutside).Verdict == service.Reject {
		return
	}
	ranges := outermost(r.f.SourceRanges)
	if len(ranges) == 0 || ranges[0].Bits() == 0 {
		return
	}
	r.add("from ")
	for i, p := range ranges {
		if i > 0 {
			r.text = append(r.text, ", "...)
		}
		r.text = p.AppendTo(r.text)
	}
}

// outermost returns the ranges that lie in no other, sorted by address.
func outermost(ranges []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range ranges {
		p = p.Masked()
		if !slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) }) {
			out = slices.DeleteFunc(out, func(o netip.Prefix) bool { return p.Overlaps(o) })
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return out
}

// hairpins are the endpoints on this node: one that reaches itself through the
// Service is masqueraded, or its answers would not come back this way.
func (b *Backend) hairpins(s *sheet, node service.Node, pf service.PortFrontends) {
	for _, e := range pf.Choice.Reachable {
		if e.LocalTo(node.Name) {
			addr := e.Addr.Addr().String()
			s.element("set/"+hairpin, addr+" . "+addr+" . "+string(pf.Port.Protocol)+" . "+strconv.Itoa(int(e.Addr.Port())))
		}
	}
}

// checkText refuses what would break out of the text of a rule or comment. Names
// come from validated objects, so this is the last line of defence.
func checkText(node service.Node, svc *service.Service) error {
	for _, p := range svc.Ports {
		switch p.Protocol {
		case service.TCP, service.UDP, service.SCTP:
		default:
			return fmt.Errorf("nftables: render %s: protocol %q is not known", svc.Name, p.Protocol)
		}
		if breaksOut(p.Name) {
			return fmt.Errorf("nftables: render %s: %q cannot stand in a rule", svc.Name, p.Name)
		}
	}
	for _, t := range [...]string{svc.Name.Namespace, svc.Name.Name, node.Detector.Bridge, node.Detector.InterfacePrefix} {
		if breaksOut(t) {
			return fmt.Errorf("nftables: render %s: %q cannot stand in a rule", svc.Name, t)
		}
	}
	return nil
}

// breaksOut tells whether a text is longer than a name of Kubernetes or an interface can
// be, or has a character that means something to nft.
func breaksOut(text string) bool {
	return len(text) > 63 || strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"'\\`$;#!*", r)
	})
}
