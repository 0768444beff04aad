package hostfile

import (
	"net/netip"
	"strings"
	"testing"

	"portolan/netfilter"
)

const contract = `interfaces: [{name: eth0, addresses: [172.22.7.89/20]}]
routes: [{to: default, via: 172.22.15.253, dev: eth0}, {to: 10.244.0.0/24, dev: cni0}]
sysctls: {net.ipv4.ip_forward: "1"}
`

func TestContractExample(t *testing.T) {
	for _, text := range []string{contract, `{"interfaces":[{"name":"eth0","addresses":["172.22.7.89/20"]}],"routes":[{"to":"default","via":"172.22.15.253","dev":"eth0"},{"to":"10.244.0.0/24","dev":"cni0"}],"sysctls":{"net.ipv4.ip_forward":1}}`} {
		h, err := Parse("f", text)
		if err != nil {
			t.Fatal(err)
		}
		fib := netfilter.NewFIB(h)
		// The connected route is left out, as the kernel makes it by itself.
		for dst, dev := range map[string]string{"10.244.0.4": "cni0", "172.22.7.90": "eth0", "8.8.8.8": "eth0"} {
			if r := fib.Lookup(netfilter.Question{Dst: netip.MustParseAddr(dst)}); r.Dev != dev || (dst == "172.22.7.90" && r.Via.IsValid()) {
				t.Errorf("%s: %+v", dst, r.Route)
			}
		}
		if on, given := h.Forwarding(netfilter.IPv4, "eth0"); !on || !given {
			t.Error("ip_forward")
		}
	}
}

func TestErrorsNameTheField(t *testing.T) {
	for text, want := range map[string]string{
		"interfaces: [{name: eth0, addresses: [banana]}]": `hostfile: f: interfaces[0].addresses[0]: "banana" is no address`,
		"routes: [{to: 10.0.0.0/8}]":                      "hostfile: f: routes[0].dev is empty",
		"routes: [{to: 10.0.0.0/8, dev: x, via: z}]":      `hostfile: f: routes[0].via: "z" is no address`,
		"sysctls: {a: [1]}":                               "hostfile: f: sysctls[a]: [1] is neither a number nor a text",
	} {
		if _, err := Parse("f", text); err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Parse("f", "interfacs: []"); err == nil || !strings.Contains(err.Error(), "interfacs") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(contract)
	f.Add("rules: [{priority: 3, from: 10.0.0.0/8, mark: 1, table: 9}]\nneighbours: [{address: 10.0.0.1, mac: AA, dev: x}]")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := Parse("f", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "hostfile: f: ") {
				t.Fatal(err)
			}
			return
		}
		netfilter.NewFIB(h).Lookup(netfilter.Question{Dst: netip.MustParseAddr("10.0.0.1")})
	})
}
