package verify

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"portolan/netfilter"
)

// served is an address and port that Service rules do something about. Without an
// address it is a NodePort.
type served struct {
	addr  netip.Addr
	port  uint16
	proto uint8
	name  string // of the Service port, "" where the rules do not say it
	where string // "nat KUBE-SERVICES", "table ip portolan", "ipvs"
	vip   bool   // the rules say that it is a cluster IP
}

// proxy is one set of Service rules.
type proxy struct {
	owner Owner
	where string // "nat KUBE-SERVICES (legacy)", "table ip portolan", "ipvs"
	mode  string // iptables, nftables or ipvs
	count int    // of addresses and ports served
}

// The chains of a proxy's layout.
const (
	chainServices    = "KUBE-SERVICES"
	chainNodePorts   = "KUBE-NODEPORTS"
	chainExternal    = "KUBE-EXTERNAL-SERVICES"
	chainPostrouting = "KUBE-POSTROUTING"
)

// findServed lists what Service rules do something about, from rules, maps and
// virtual servers.
func (w *world) findServed() (out []served) {
	for _, t := range w.host.Tables {
		if t.Variant == netfilter.Native {
			if serviceTable(t) {
				out = append(out, servedByMaps(t)...)
			}
			continue
		}
		for _, name := range []string{chainServices, chainNodePorts, chainExternal} {
			out = append(out, servedBelow(t, name)...)
		}
	}
	for i := range w.host.Servers {
		if s := &w.host.Servers[i]; s.Mark == 0 && !w.hidden(s) {
			out = append(out, served{addr: s.Addr, port: s.Port, proto: s.Proto, where: "ipvs"})
		}
	}
	return out
}

// hidden tells whether only rules of Portolan lead to a virtual server: it has the
// endpoints for clients that a policy does not hold to this node.
func (w *world) hidden(s *netfilter.VirtualServer) bool {
	for _, name := range []string{"KUBE-PORTOLAN-INSIDE", "KUBE-6-PORTOLAN-INSIDE"} {
		set := w.host.Set(name)
		if set != nil && set.Contains(netfilter.SetKey{{Addr: s.Addr}, {Port: s.Port, Proto: s.Proto}}) {
			return true
		}
	}
	return false
}

// findProxies lists the sets of Service rules: those that serve most first, of
// equals Portolan's, then those of nftables.
func (w *world) findProxies() (out []proxy) {
	count := map[string]map[served]bool{}
	add := func(where string, list []served) {
		if count[where] == nil {
			count[where] = map[served]bool{}
		}
		for _, s := range list {
			count[where][served{addr: s.addr, port: s.port, proto: s.proto}] = true
		}
	}
	for _, t := range w.host.Tables {
		place := chainPlace(t, chainServices)
		switch {
		case serviceTable(t):
			out = append(out, proxy{owner: w.ownerOfTable(t.Name), where: "table " + t.Name, mode: "nftables"})
			add("table "+t.Name, servedByMaps(t))
		case t.Name == netfilter.NAT && t.Chain(chainServices) != nil && t.Chain(chainNodePorts) != nil:
			out = append(out, proxy{owner: w.ownerOfChain(chainServices), where: place, mode: "iptables"})
			add(place, append(servedBelow(t, chainServices), servedBelow(t, chainNodePorts)...))
		case t.Name == netfilter.Filter:
			place = strings.Replace(place, netfilter.Filter+" ", netfilter.NAT+" ", 1)
			for _, name := range []string{chainServices, chainExternal} {
				add(place, servedBelow(t, name))
			}
		}
	}
	if len(w.host.Servers) > 0 {
		out = append(out, proxy{owner: w.ownerOfServers(), where: "ipvs", mode: "ipvs", count: len(w.host.Servers)})
	}
	for i := range out {
		out[i].count += len(count[out[i].where])
	}
	slices.SortStableFunc(out, proxy.before)
	return out
}

// before orders by what is served.
func (p proxy) before(o proxy) int {
	rank := func(p proxy) int {
		switch {
		case p.owner.Name == portolan:
			return 2
		case p.mode == "nftables":
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(o.count, p.count), cmp.Compare(rank(o), rank(p)))
}

// ownerOfServers tells who made the virtual servers.
func (w *world) ownerOfServers() Owner {
	switch {
	case w.host.Interface("kube-dummy-if") != nil:
		return Owner{"kube-router", "there is an interface kube-dummy-if"}
	case w.ours != "":
		return Owner{portolan, w.ours}
	case w.host.Interface(serviceDummy) != nil:
		return Owner{kubeProxy, "there is an interface " + serviceDummy}
	}
	return Owner{kubeProxy, "virtual servers beside chains called KUBE-*"}
}

// serviceTable tells whether a native table is a Service proxy's.
func serviceTable(t *netfilter.Table) bool {
	_, name, _ := strings.Cut(t.Name, " ")
	return t.Variant == netfilter.Native && (name == portolan || name == kubeProxy)
}

// chainPlace names a chain, with the variant if it is known.
func chainPlace(t *netfilter.Table, chain string) string {
	text := t.Name + " " + chain
	if t.Family == netfilter.IPv6 {
		text = "ip6tables " + text
	}
	if t.Variant != netfilter.Unstated {
		text += " (" + t.Variant.String() + ")"
	}
	return text
}

// servicePort is a Service port as comments begin with it.
var servicePort = regexp.MustCompile(`^[a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*(:[a-z0-9][-a-z0-9]*)?`)

// treePrefix begins the names of the chains that Portolan has and kube-proxy does not.
const treePrefix = "KUBE-PORTOLAN-"

// servedBelow reads the rules of a chain and, in the compact layout, of the tree below
// it.
func servedBelow(t *netfilter.Table, root string) (out []served) {
	seen := map[string]bool{} // a chain that leads to itself is somebody's mistake
	var read func(name string)
	read = func(name string) {
		c := t.Chain(name)
		if c == nil || seen[name] {
			return
		}
		seen[name] = true
		out = append(out, servedByChain(t, c, root)...)
		for i := range c.Rules {
			if j, ok := c.Rules[i].Target.(netfilter.Jump); ok && strings.HasPrefix(j.Chain, treePrefix) {
				read(j.Chain)
			}
		}
	}
	read(root)
	return out
}

// servedByChain reads rules for one address and port, or one port, that root leads to.
func servedByChain(t *netfilter.Table, c *netfilter.Chain, root string) (out []served) {
	for i := range c.Rules {
		r := &c.Rules[i]
		s := served{where: chainPlace(t, root), name: servicePort.FindString(r.Comment()), vip: strings.HasSuffix(r.Comment(), " cluster IP")}
		for _, m := range r.Matches {
			switch m := m.(type) {
			case netfilter.Address:
				if m.Side == netfilter.DestinationSide && !m.Not && m.Prefix.IsSingleIP() {
					s.addr = m.Prefix.Addr()
				}
			case netfilter.Protocol:
				s.proto = m.Number
			case netfilter.Port:
				if m.Side == netfilter.DestinationSide && !m.Not && m.Range.First == m.Range.Last {
					s.port = m.Range.First
				}
			}
		}
		if s.port != 0 && (s.addr.IsValid() || root == chainNodePorts) {
			out = append(out, s)
		}
	}
	return out
}

// servedByMaps reads maps to verdicts, or to the numbers of chains, by address,
// protocol and port, or by protocol and port.
func servedByMaps(t *netfilter.Table) (out []served) {
	vips := map[netip.Addr]bool{}
	if s := t.Set("cluster-ips"); s != nil && len(s.Key) == 1 {
		for i := range s.Elements {
			if a, ok := netip.AddrFromSlice([]byte(s.Elements[i].First)); ok {
				vips[a] = true
			}
		}
	}
	for _, m := range t.Sets {
		if !m.IsVerdictMap() && !numbersChains(m) || len(m.Key) < 2 || len(m.Key) > 3 {
			continue
		}
		for i := range m.Elements {
			e := &m.Elements[i]
			if s, ok := keyOf(m.Key, e.First); ok && e.First == e.Last {
				s.where, s.name, s.vip = "table "+t.Name, servicePort.FindString(e.Comment), vips[s.addr]
				out = append(out, s)
			}
		}
	}
	return out
}

// numbersChains tells of Portolan's maps from frontends to the numbers of chains.
func numbersChains(m *netfilter.NFTSet) bool {
	return m.IsMap() && (m.Name == "service-ips" || m.Name == "nodeports")
}

// keyOf reads a key of an address, a protocol and a port.
func keyOf(parts []netfilter.Part, key string) (s served, ok bool) {
	if n, _ := netfilter.Width(parts); n != len(key) {
		return s, false
	}
	at := 0
	for i, p := range parts {
		value := []byte(key[at : at+int(p.Bytes)])
		at += int(p.Bytes)
		switch {
		case len(parts) == 3 && i == 0:
			if s.addr, ok = netip.AddrFromSlice(value); !ok {
				return s, false
			}
		case len(value) == 1:
			s.proto = value[0]
		case len(value) == 2:
			s.port = binary.BigEndian.Uint16(value)
		default:
			return s, false
		}
	}
	return s, s.port != 0 && s.proto != 0
}
