package verify

import (
	"fmt"

	"portolan/service"
)

// checkBridges: on a bridge with several pods the answers of one to another go
// straight over the bridge, and are translated back only where netfilter sees
// bridged packets.
func checkBridges(w *world) (out []Finding) {
	for f, name := range map[service.Family]string{service.IPv4: "net.bridge.bridge-nf-call-iptables", service.IPv6: "net.bridge.bridge-nf-call-ip6tables"} {
		if on, given := w.on(name); !given || on || w.in.Services == nil {
			continue
		}
		for _, net := range w.podNetworks(f) {
			if bridge, _ := w.host.IsBridge(net.Dev); !bridge || !w.serves(f) {
				continue
			}
			out = append(out, Finding{
				Code: BridgeFilterOff, Severity: Warning, Object: name, Owner: kernelOwner,
				Actual:   fmt.Sprintf("it is 0, and pods are on bridge %s: one that calls another one on this node by its Service gets answers from an address that it did not call", net.Dev),
				Expected: "1, with the module br_netfilter", Fix: bridgeFix(name),
			})
			break
		}
	}
	return out
}

func bridgeFix(name string) string {
	return "modprobe br_netfilter; sysctl -w " + name + "=1, and files in /etc/modules-load.d and /etc/sysctl.d that keep both"
}
