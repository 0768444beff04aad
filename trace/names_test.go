package trace_test

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
)

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// Every hashed chain of the documents is named, from its comments and proved
// by its hash: 10 KUBE-SVC and 19 KUBE-SEP chains.
func TestChainNames(t *testing.T) {
	files, err := filepath.Glob(shared + "dumps/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{}
	for _, file := range files {
		texts, err := detect.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		h, err := detect.Host(detect.Options{}, texts...)
		if err != nil {
			continue // ipvsadm
		}
		tr := trace.New(h, trace.Options{})
		for _, tab := range h.Tables {
			for _, c := range tab.Chains() {
				if n := tr.ChainName(tab.Family, tab.Variant, tab.Name, c.Name); n != "" {
					named[c.Name] = n
				}
			}
		}
	}
	kinds := map[string]int{}
	for chain := range named {
		kinds[chain[:8]]++
	}
	if kinds["KUBE-SVC"] < 9 || kinds["KUBE-SEP"] != 19 || kinds["KUBE-EXT"] != 2 {
		t.Errorf("%v", kinds)
	}
	for chain, want := range map[string]string{
		"KUBE-SVC-2CMXP7HKUVJN7L6M": "default/nginx balancing",
		"KUBE-EXT-2CMXP7HKUVJN7L6M": "default/nginx external traffic",
		"KUBE-SEP-AAOCRVJBUI2XUHEI": "default/nginx endpoint 10.244.0.4:80",
		"KUBE-SVC-TCOU7JCQXEZGVUNU": "kube-system/kube-dns:dns balancing",
		"KUBE-SEP-242VRRB6CJESMF7F": "default/traefik:web endpoint 10.244.0.5:8000",
	} {
		if named[chain] != want {
			t.Errorf("%s: %q, want %q", chain, named[chain], want)
		}
	}
}

// Without comments, as in large clusters, the endpoint is named by its hash,
// from the Service the walk came by; a map from outside beats everything.
func TestNamesWithoutComments(t *testing.T) {
	rules := "*nat\n-A PREROUTING -d 10.106.224.38/32 -p tcp -m comment --comment \"default/nginx cluster IP\" -m tcp --dport 80 -j KUBE-SVC-2CMXP7HKUVJN7L6M\n:KUBE-SVC-2CMXP7HKUVJN7L6M - [0:0]\n:KUBE-SEP-AAOCRVJBUI2XUHEI - [0:0]\n-A KUBE-SVC-2CMXP7HKUVJN7L6M -j KUBE-SEP-AAOCRVJBUI2XUHEI\n-A KUBE-SEP-AAOCRVJBUI2XUHEI -p tcp -j DNAT --to-destination 10.244.0.4:80\nCOMMIT\n"
	h := hostOf(t, detect.Options{}, rules, host001)
	equal(t, "service", only(t, h, "203.0.113.9 10.106.224.38:80 in=eth0").Service, "default/nginx")
	tr := trace.New(h, trace.Options{Names: map[string]string{"KUBE-SEP-AAOCRVJBUI2XUHEI": "shop/front:web endpoint 10.244.0.4:80"}})
	equal(t, "given", tr.ChainName(netfilter.IPv4, 0, "nat", "KUBE-SEP-AAOCRVJBUI2XUHEI"), "shop/front:web endpoint 10.244.0.4:80")
	equal(t, "service", tr.Trace(flow(t, "203.0.113.9 10.106.224.38:80 in=eth0")).Outcomes[0].Service, "shop/front:web")
}

// A rule that rejects names its Service by its comment.
func TestServiceOfReject(t *testing.T) {
	h := hostOf(t, detect.Options{}, "*filter\n:KUBE-SERVICES - [0:0]\n-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES\n-A KUBE-SERVICES -d 10.96.0.77/32 -p tcp -m comment --comment \"default/empty:http has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable\nCOMMIT\n", ipForward+on)
	o := only(t, h, "198.51.100.9 10.96.0.77:80")
	if o.Verdict != trace.Rejected || o.Service != "default/empty:http" || !strings.Contains(o.Reason, "has no endpoints") {
		t.Errorf("%s %s %s", o.Verdict, o.Service, o.Reason)
	}
}
