package netfilter

import (
	"fmt"
	"net/netip"
)

// Family is an IP family. The numbers are those of the IP version field.
type Family uint8

// The two families that iptables and ip6tables serve.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf tells the family of an address; IPv4-mapped IPv6 counts as IPv4.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() || a.Is4In6() {
		return IPv4
	}
	return IPv6
}

func (f Family) String() string {
	switch f {
	case IPv4:
		return "ipv4"
	case IPv6:
		return "ipv6"
	case 0:
		return "unknown family"
	default:
		panic(fmt.Sprintf("netfilter: family %d", f))
	}
}

// Bits is the length of an address of the family: 32 or 128.
func (f Family) Bits() int {
	if f == IPv6 {
		return 128
	}
	return 32
}

// Variant tells which iptables back end holds a table. Both may hold rules at
// once, and then both run, at the same priorities.
type Variant uint8

// Unstated means that the text did not say; a tracer treats it as a third
// holder of rules.
const (
	Unstated Variant = iota
	Legacy
	NFT
	// Native is no iptables variant: a table of nftables' own.
	Native
)

func (v Variant) String() string {
	switch v {
	case Unstated:
		return "unstated"
	case Legacy:
		return "legacy"
	case NFT:
		return "nft"
	case Native:
		return "nftables"
	default:
		panic(fmt.Sprintf("netfilter: variant %d", v))
	}
}

// Hook is one of the five places of the IP stack where rules run.
type Hook uint8

// NoHook is the hook of a chain that only jumps reach.
const (
	NoHook Hook = iota
	Prerouting
	Input
	Forward
	Output
	Postrouting
)

// Hooks lists the five hooks in the order of the kernel's numbers.
var Hooks = []Hook{Prerouting, Input, Forward, Output, Postrouting}

func (h Hook) String() string {
	switch h {
	case NoHook:
		return "none"
	case Prerouting:
		return "prerouting"
	case Input:
		return "input"
	case Forward:
		return "forward"
	case Output:
		return "output"
	case Postrouting:
		return "postrouting"
	default:
		panic(fmt.Sprintf("netfilter: hook %d", h))
	}
}

// HookOfChain is the hook of a built-in chain by its name (PREROUTING, INPUT,
// ...), NoHook for every other name.
func HookOfChain(name string) Hook {
	switch name {
	case "PREROUTING":
		return Prerouting
	case "INPUT":
		return Input
	case "FORWARD":
		return Forward
	case "OUTPUT":
		return Output
	case "POSTROUTING":
		return Postrouting
	}
	return NoHook
}

// ChainName is the built-in chain's name at a hook: PREROUTING for Prerouting.
func (h Hook) ChainName() string {
	switch h {
	case Prerouting:
		return "PREROUTING"
	case Input:
		return "INPUT"
	case Forward:
		return "FORWARD"
	case Output:
		return "OUTPUT"
	case Postrouting:
		return "POSTROUTING"
	default:
		panic(fmt.Sprintf("netfilter: no chain at hook %d", h))
	}
}

// The five tables of iptables.
const (
	Raw      = "raw"
	Mangle   = "mangle"
	NAT      = "nat"
	Filter   = "filter"
	Security = "security"
)

// TableNames lists the tables in the order of their priority at PREROUTING
// and OUTPUT.
var TableNames = []string{Raw, Mangle, NAT, Filter, Security}

// TableHooks lists the hooks at which a table has a built-in chain, nil for a
// name that is no table. nat has INPUT since Linux 2.6.36.
func TableHooks(table string) []Hook {
	switch table {
	case Raw:
		return []Hook{Prerouting, Output}
	case Mangle:
		return Hooks
	case NAT:
		return []Hook{Prerouting, Input, Output, Postrouting}
	case Filter, Security:
		return []Hook{Input, Forward, Output}
	}
	return nil
}

// HasHook reports whether a table has a built-in chain at a hook.
func HasHook(table string, h Hook) bool {
	for _, x := range TableHooks(table) {
		if x == h {
			return true
		}
	}
	return false
}

// ConntrackPriority is where the kernel looks up or creates the conntrack
// entry: after raw, before mangle.
const ConntrackPriority = -200

// Priority is the order of a table at a hook: lower runs first. iptables-nft
// registers the security table at 150 (seen with 1.8.9), legacy at 50.
func Priority(table string, h Hook, v Variant) int {
	switch table {
	case Raw:
		return -300
	case Mangle:
		return -150
	case NAT:
		if h == Prerouting || h == Output {
			return -100
		}
		return 100
	case Filter:
		return 0
	case Security:
		if v == NFT {
			return 150
		}
		return 50
	default:
		panic("netfilter: priority of table " + table)
	}
}
