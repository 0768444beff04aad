package netfilter

import "strings"

// sysctlDefaults are the kernel's defaults of what a walk asks for. rp_filter
// is the kernel's 0; distributions often set 2.
var sysctlDefaults = map[string]string{
	"net.ipv4.ip_forward":                       "0",
	"net.ipv6.conf.all.forwarding":              "0",
	"net.bridge.bridge-nf-call-iptables":        "1",
	"net.bridge.bridge-nf-call-ip6tables":       "1",
	"net.ipv4.vs.conntrack":                     "0",
	"net.netfilter.nf_conntrack_tcp_loose":      "1",
	"net.netfilter.nf_conntrack_tcp_be_liberal": "0",
}

// SysctlName writes the part of a per-interface sysctl: dots in interface
// names are slashes there (eth0.100 is eth0/100).
func SysctlName(family Family, iface, leaf string) string {
	return "net." + family.String() + ".conf." + strings.ReplaceAll(iface, ".", "/") + "." + leaf
}

// Sysctl reads a value. given is false when the value is the kernel's default
// because nothing was said about it.
func (h *Host) Sysctl(name string) (value string, given bool) {
	if v, ok := h.Sysctls[name]; ok {
		return v, true
	}
	if v, ok := sysctlDefaults[name]; ok {
		return v, false
	}
	return "0", false
}

// ConfSysctl reads a per-interface value that combines with "all" by maximum
// (rp_filter) or by OR (route_localnet, accept_local), which is the same thing
// for 0 and 1.
func (h *Host) ConfSysctl(family Family, iface, leaf string) (value string, given bool) {
	all, g1 := h.Sysctl(SysctlName(family, "all", leaf))
	own, g2 := h.Sysctl(SysctlName(family, iface, leaf))
	if !g2 {
		// A new interface copies the value of "default".
		own, g2 = h.Sysctl(SysctlName(family, "default", leaf))
	}
	return max(all, own), g1 || g2
}

// Forwarding reads whether packets that arrive at an interface are forwarded.
// IPv4 decides per arrival interface, IPv6 by "all" only.
func (h *Host) Forwarding(family Family, iface string) (on, given bool) {
	if family == IPv6 {
		v, given := h.Sysctl("net.ipv6.conf.all.forwarding")
		return v != "0", given
	}
	if iface != "" {
		if v, ok := h.Sysctls[SysctlName(IPv4, iface, "forwarding")]; ok {
			return v != "0", true
		}
	}
	v, given := h.Sysctl("net.ipv4.ip_forward")
	return v != "0", given
}
