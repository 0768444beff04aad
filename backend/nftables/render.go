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
			r := frontend{sheet: s, b: b, f: f, pods: pods, key: keyOf(f)}
			if err := r.write(); err != nil {
				s.end()
				return nil, fmt.Errorf("nftables: render %s: %w", svc.Name, err)
			}
		}
		b.hairpins(s, node, pf)
	}
	return s.objects(), nil
}

// keyOf is the text of a frontend in keys.
func keyOf(f service.Frontend) string {
	key := string(f.Protocol) + " . " + strconv.Itoa(int(f.Port))
	if f.Kind != service.NodePort {
		return f.Addr.String() + " . " + key
	}
	return key
}

// frontend writes the elements of one frontend.
type frontend struct {
	*sheet
	b    *Backend
	f    service.Frontend
	pods string
	key  string
}

// mostEndpoints is how many slots a list has room for.
const mostEndpoints = localSlots

// write adds the frontend; see the constant frontends for its form.
func (r *frontend) write() error {
	k, lists, forwards := balancerOf(r.f, r.pods)
	if n := max(k.n, k.m); n > mostEndpoints {
		return fmt.Errorf("%d endpoints at %s; at most %d fit", n, r.key, mostEndpoints)
	}
	r.open(frontends, r.key)
	sep := " : "
	add := func(words ...string) {
		r.text = append(r.text, sep...)
		for _, w := range words {
			r.text = append(r.text, w...)
		}
		sep = "; "
	}
	if forwards {
		add("goto ", k.entry())
	}
	switch v := r.f.Route(service.FromOutside).Verdict; v {
	case service.Forward:
	case service.Reject:
		add("reject")
	case service.Drop:
		add("drop")
	default:
		panic(fmt.Sprintf("nftables: unknown verdict %v", v))
	}
	if forwards {
		add(k.slots(), " ")
		r.endpoints(lists[0])
		if k.local && k.m > 0 {
			r.text = append(r.text, " | "...)
			r.endpoints(lists[1])
		}
		r.share(r.b.chainsOf(k))
	}
	if ranges := r.ranges(); len(ranges) > 0 {
		add("from ")
		for i, p := range ranges {
			if i > 0 {
				r.text = append(r.text, ", "...)
			}
			r.text = p.AppendTo(r.text)
		}
	}
	if forwards && k.affine {
		add("scope ", scopeOf(r.f))
	}
	r.close()
	if forwards && k.affine {
		timeout := seconds(r.f.Affinity)
		r.element(shapes[affinityLearn].container(affinityLearn), scopeOf(r.f), " : goto learn-", timeout)
		r.share(r.b.affinityObjects(timeout))
	}
	if r.f.Kind == service.ClusterIP {
		r.element("set/"+clusterIPs, r.f.Addr.String())
	}
	return nil
}

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

// ranges are who may use the frontend, nil for everybody. A range that lies in
// another is left out: the kernel takes no overlaps. A range that is everybody
// limits nobody. Where there is nothing to protect everybody is refused, as in
// iptables mode.
func (r *frontend) ranges() []netip.Prefix {
	if r.f.Route(service.FromOutside).Verdict == service.Reject {
		return nil
	}
	ranges := outermost(r.f.SourceRanges)
	if len(ranges) == 0 || ranges[0].Bits() == 0 {
		return nil
	}
	return ranges
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
	texts := []string{svc.Name.Namespace, svc.Name.Name, node.Detector.Bridge, node.Detector.InterfacePrefix}
	for _, p := range svc.Ports {
		if !slices.Contains([]service.Protocol{service.TCP, service.UDP, service.SCTP}, p.Protocol) {
			return fmt.Errorf("nftables: render %s: protocol %q is not known", svc.Name, p.Protocol)
		}
		texts = append(texts, p.Name)
	}
	breaksOut := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"'\\`$;#!*", r) }
	for _, t := range texts {
		if len(t) > 63 || strings.ContainsFunc(t, breaksOut) {
			return fmt.Errorf("nftables: render %s: %q cannot stand in a rule", svc.Name, t)
		}
	}
	return nil
}
