// Package iproute reads what iproute2 and net-tools print about addresses,
// routes, routing rules and neighbours: `ip addr`, `ip route`, `ip rule`,
// `ip neigh`, `route -n` and `arp -n`. Errors name file and line.
package iproute

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// each calls do for every line with its fields; its error gets file and line.
func each(file, text string, do func(line string, f []string) error) error {
	for n, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if err := do(line, f); err != nil {
			return fmt.Errorf("iproute: %s:%d: %w", file, n+1, err)
		}
	}
	return nil
}

// Addresses reads `ip addr`, `ip -d addr` and `ip -o addr`.
func Addresses(file, text string) ([]netfilter.Interfaced, error) {
	var out []netfilter.Interfaced
	err := each(file, text, func(line string, f []string) error {
		if index, ok := strings.CutSuffix(f[0], ":"); ok && len(f) > 1 && line[0] != ' ' {
			n, err := strconv.Atoi(index)
			if err != nil {
				return fmt.Errorf("%q is no interface index", f[0])
			}
			name, _, _ := strings.Cut(strings.TrimSuffix(f[1], ":"), "@")
			if len(out) == 0 || out[len(out)-1].Name != name {
				out = append(out, netfilter.Interfaced{Name: name, Index: n})
			}
			in := &out[len(out)-1]
			if len(f) > 2 && strings.HasPrefix(f[2], "<") {
				flags := strings.Split(strings.Trim(f[2], "<>"), ",")
				in.Down = !slices.Contains(flags, "UP")
				in.Master = after(f, "master")
				return nil
			}
			f = f[2:] // -o: the address follows on the same line
			if len(f) == 0 {
				return nil
			}
		}
		if len(out) == 0 {
			return fmt.Errorf("expected an interface, not %q", line)
		}
		return detail(&out[len(out)-1], f)
	})
	return out, err
}

// detail reads a line below an interface.
func detail(in *netfilter.Interfaced, f []string) error {
	switch f[0] {
	case "inet", "inet6":
		a, err := address(f)
		if err != nil {
			return err
		}
		in.Addresses = append(in.Addresses, a)
	case "bridge", "vxlan", "veth", "ipvlan", "macvlan", "dummy", "vlan", "ipip", "sit", "gre", "wireguard", "tun", "bond", "vrf":
		in.Kind = f[0]
	default:
		if strings.HasPrefix(f[0], "link/") && len(f) > 1 {
			in.MAC = f[1]
			// -d appends the kind's line to the link's on old versions.
			if slices.Contains(f, "bridge") && slices.Contains(f, "forward_delay") {
				in.Kind = "bridge"
			}
		}
	}
	return nil
}

// address reads what stands behind "inet" and "inet6".
func address(f []string) (netfilter.InterfaceAddress, error) {
	var a netfilter.InterfaceAddress
	if len(f) < 2 {
		return a, fmt.Errorf("%s lacks an address", f[0])
	}
	p, err := prefix(f[1])
	if err != nil {
		return a, err
	}
	a.Prefix = p
	if peer := after(f, "peer"); peer != "" {
		if a.Peer, err = prefix(peer); err != nil {
			return a, err
		}
	}
	if b := after(f, "brd"); b != "" {
		if a.Broadcast, err = netip.ParseAddr(b); err != nil {
			return a, fmt.Errorf("%q is no broadcast address", b)
		}
	}
	scope := after(f, "scope")
	a.Narrow = scope == "host" || scope == "link"
	a.Secondary = slices.Contains(f, "secondary")
	return a, nil
}

// after gives the word that follows a key, "" without.
func after(f []string, key string) string {
	for i, w := range f[:len(f)-1] {
		if w == key {
			return f[i+1]
		}
	}
	return ""
}

// prefix reads ADDRESS or ADDRESS/LENGTH, and keeps the host part.
func prefix(w string) (netip.Prefix, error) {
	if !strings.Contains(w, "/") {
		a, err := netip.ParseAddr(w)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%q is no address", w)
		}
		return netip.PrefixFrom(a.WithZone(""), a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(w)
	if err != nil {
		return p, fmt.Errorf("%q is no prefix", w)
	}
	return p, nil
}

// Neighbours reads `ip neigh`.
func Neighbours(file, text string) ([]netfilter.Neighbour, error) {
	var out []netfilter.Neighbour
	err := each(file, text, func(line string, f []string) error {
		a, err := netip.ParseAddr(f[0])
		if err != nil {
			return fmt.Errorf("%q is no address", f[0])
		}
		n := netfilter.Neighbour{Addr: a, Dev: after(f, "dev"), MAC: after(f, "lladdr"), State: f[len(f)-1]}
		if n.Dev == "" {
			return fmt.Errorf("no device in %q", line)
		}
		out = append(out, n)
		return nil
	})
	return out, err
}

// ARP reads `arp -n`.
func ARP(file, text string) ([]netfilter.Neighbour, error) {
	var out []netfilter.Neighbour
	err := each(file, text, func(line string, f []string) error {
		if f[0] == "Address" {
			return nil
		}
		a, err := netip.ParseAddr(f[0])
		if err != nil {
			return fmt.Errorf("%q is no address", f[0])
		}
		switch {
		case len(f) >= 3 && f[1] == "(incomplete)":
			out = append(out, netfilter.Neighbour{Addr: a, Dev: f[len(f)-1], State: "INCOMPLETE"})
		case len(f) >= 5:
			n := netfilter.Neighbour{Addr: a, MAC: f[2], Dev: f[len(f)-1], State: "REACHABLE"}
			if strings.Contains(f[3], "M") {
				n.State = "PERMANENT"
			}
			out = append(out, n)
		default:
			return fmt.Errorf("%q is no line of arp -n", line)
		}
		return nil
	})
	return out, err
}
