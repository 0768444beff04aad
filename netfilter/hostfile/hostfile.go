// Package hostfile reads a description of a host that a person wrote, in YAML
// or JSON:
//
//	interfaces: [{name: eth0, addresses: [172.22.7.89/20]}, {name: cni0, kind: bridge}]
//	routes: [{to: default, via: 172.22.15.253, dev: eth0}, {to: 10.244.0.0/24, dev: cni0}]
//	sysctls: {net.ipv4.ip_forward: "1"}
//
// What is left out has the kernel's default: connected routes follow from the
// addresses, sysctls have the values of a fresh kernel.
package hostfile

import (
	"fmt"
	"net/netip"
	"strings"

	"sigs.k8s.io/yaml"

	"portolan/netfilter"
)

// file is the form of the text.
type file struct {
	Interfaces []struct {
		Name      string   `json:"name"`
		Addresses []string `json:"addresses"`
		Kind      string   `json:"kind"`
		Master    string   `json:"master"`
		MAC       string   `json:"mac"`
	} `json:"interfaces"`
	Routes []struct {
		To     string `json:"to"`
		Via    string `json:"via"`
		Dev    string `json:"dev"`
		Src    string `json:"src"`
		Type   string `json:"type"`
		Metric uint32 `json:"metric"`
		Table  int    `json:"table"`
	} `json:"routes"`
	Rules []struct {
		Priority uint32 `json:"priority"`
		From     string `json:"from"`
		To       string `json:"to"`
		Mark     uint32 `json:"mark"`
		Mask     uint32 `json:"mask"`
		IIF      string `json:"iif"`
		Table    int    `json:"table"`
	} `json:"rules"`
	Neighbours []struct {
		Address string `json:"address"`
		MAC     string `json:"mac"`
		Dev     string `json:"dev"`
	} `json:"neighbours"`
	Sysctls map[string]any `json:"sysctls"`
}

// Parse reads one description. Errors name the file and, for syntax, what the
// YAML reader says of the line; for values, the entry and the field.
func Parse(name, text string) (*netfilter.Host, error) {
	var f file
	if err := yaml.UnmarshalStrict([]byte(text), &f); err != nil {
		return nil, fmt.Errorf("hostfile: %s: %w", name, err)
	}
	h := &netfilter.Host{Described: true, Sysctls: map[string]string{}}
	h.Have = netfilter.Known{Interfaces: f.Interfaces != nil, Routes: f.Routes != nil, RoutingRules: f.Rules != nil, Neighbours: f.Neighbours != nil, Sysctls: f.Sysctls != nil}
	for _, step := range []func(*netfilter.Host) error{f.interfaces, f.routes, f.rules, f.rest} {
		if err := step(h); err != nil {
			return nil, fmt.Errorf("hostfile: %s: %w", name, err)
		}
	}
	return h, nil
}

func (f *file) interfaces(h *netfilter.Host) error {
	for i, in := range f.Interfaces {
		if in.Name == "" {
			return fmt.Errorf("interfaces[%d].name is empty", i)
		}
		x := netfilter.Interfaced{Name: in.Name, Index: i + 1, Kind: in.Kind, Master: in.Master, MAC: strings.ToLower(in.MAC)}
		for j, a := range in.Addresses {
			p, err := prefix(a)
			if err != nil {
				return fmt.Errorf("interfaces[%d].addresses[%d]: %w", i, j, err)
			}
			narrow := p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast()
			x.Addresses = append(x.Addresses, netfilter.InterfaceAddress{Prefix: p, Narrow: narrow})
		}
		h.Interfaces = append(h.Interfaces, x)
	}
	return nil
}

func prefix(w string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(w); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(w)
	if err != nil {
		return p, fmt.Errorf("%q is no address", w)
	}
	return p, nil
}

func address(w string) (netip.Addr, error) {
	if w == "" {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(w)
	if err != nil {
		return a, fmt.Errorf("%q is no address", w)
	}
	return a, nil
}

func (f *file) routes(h *netfilter.Host) error {
	for i, r := range f.Routes {
		x := netfilter.Route{Dev: r.Dev, Metric: r.Metric, Table: r.Table}
		var err error
		if x.Via, err = address(r.Via); err != nil {
			return fmt.Errorf("routes[%d].via: %w", i, err)
		}
		if x.Src, err = address(r.Src); err != nil {
			return fmt.Errorf("routes[%d].src: %w", i, err)
		}
		if r.To == "default" {
			x.To = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if x.Via.Is6() || x.Src.Is6() {
				x.To = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
		} else if x.To, err = prefix(r.To); err != nil {
			return fmt.Errorf("routes[%d].to: %w", i, err)
		}
		x.To = x.To.Masked()
		if r.Type != "" {
			t, ok := netfilter.RouteTypeByName(r.Type)
			if !ok {
				return fmt.Errorf("routes[%d].type: %q is no type of route", i, r.Type)
			}
			x.Type = t
		}
		if x.Dev == "" && x.Type == netfilter.RouteUnicast {
			return fmt.Errorf("routes[%d].dev is empty", i)
		}
		h.Routes = append(h.Routes, x)
	}
	return nil
}

func (f *file) rules(h *netfilter.Host) error {
	if len(f.Rules) > 0 {
		h.RoutingRules = netfilter.DefaultRules()
	}
	for i, r := range f.Rules {
		x := netfilter.RoutingRule{Priority: r.Priority, Mark: r.Mark, MarkMask: r.Mask, IIF: r.IIF, Table: r.Table, SuppressPrefix: -1}
		if r.Mark != 0 && r.Mask == 0 {
			x.MarkMask = 0xffffffff
		}
		for _, p := range []struct {
			text, field string
			to          *netip.Prefix
		}{{r.From, "from", &x.From}, {r.To, "to", &x.To}} {
			if p.text == "" || p.text == "all" {
				continue
			}
			q, err := prefix(p.text)
			if err != nil {
				return fmt.Errorf("rules[%d].%s: %w", i, p.field, err)
			}
			*p.to = q.Masked()
			x.Family = netfilter.FamilyOf(q.Addr())
		}
		h.RoutingRules = append(h.RoutingRules, x)
	}
	return nil
}

func (f *file) rest(h *netfilter.Host) error {
	for i, n := range f.Neighbours {
		a, err := address(n.Address)
		if err != nil || !a.IsValid() {
			return fmt.Errorf("neighbours[%d].address: %q is no address", i, n.Address)
		}
		h.Neighbours = append(h.Neighbours, netfilter.Neighbour{Addr: a, MAC: strings.ToLower(n.MAC), Dev: n.Dev, State: "REACHABLE"})
	}
	for k, v := range f.Sysctls {
		switch v := v.(type) {
		case bool:
			h.Sysctls[k] = map[bool]string{true: "1", false: "0"}[v]
		case string, float64, int64, int:
			h.Sysctls[k] = fmt.Sprint(v)
		default:
			return fmt.Errorf("sysctls[%s]: %v is neither a number nor a text", k, v)
		}
	}
	return nil
}
