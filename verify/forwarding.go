package verify

import (
	"portolan/service"
)

// kernelOwner owns what sysctls say.
var kernelOwner = Owner{admin, "sysctls are set by whoever configures the host"}

// on tells whether a sysctl was given, and is not 0.
func (w *world) on(name string) (on, given bool) {
	v, given := w.host.Sysctls[name]
	return v != "0", given
}

// checkForwarding: packets between pods, and from outside to pods, are forwarded.
// Each family stands for itself.
func checkForwarding(w *world) (out []Finding) {
	for f, name := range map[service.Family]string{service.IPv4: "net.ipv4.ip_forward", service.IPv6: "net.ipv6.conf.all.forwarding"} {
		if on, given := w.on(name); !given || on || !w.serves(f) {
			continue
		}
		out = append(out, Finding{
			Code: ForwardingOff, Severity: Error, Object: name, Owner: kernelOwner,
			Actual:   "it is 0: the host forwards no packet to or from pods on other nodes, nor from outside to pods",
			Expected: "1", Fix: hostFix(name),
		})
	}
	return out
}

// serves tells whether the host has Services, or endpoints, of a family.
func (w *world) serves(f service.Family) bool {
	for _, s := range w.served {
		if s.addr.IsValid() && service.FamilyOf(s.addr) == f {
			return true
		}
	}
	return w.in.Services != nil && len(w.localEndpoints(f)) > 0
}
