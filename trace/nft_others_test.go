package trace_test

import (
	"net/netip"
	"strings"
	"testing"

	"portolan/netfilter/detect"
	"portolan/trace"
)

// othersNode has the interfaces of several pod networks.
const othersNode = `interfaces: [{name: eth0, addresses: [172.22.7.89/20, "fd00:1::1/64"]}, {name: cni0, kind: bridge, addresses: [10.244.0.1/24]}, {name: cali1, addresses: []}, {name: docker0, kind: bridge, addresses: [172.17.0.1/16]}]
routes: [{to: default, via: 172.22.15.253, dev: eth0}, {to: 10.244.0.5, dev: cali1}, {to: 10.244.1.0/24, via: 172.22.7.90, dev: eth0}, {to: default, via: "fd00:1::fe", dev: eth0}]
sysctls: {net.ipv4.ip_forward: "1", net.ipv6.conf.all.forwarding: "1"}
`

// What others write into nft: flannel, docker, firewalld and calico, in the
// forms that nft 1.0.6 lists.
var others = []struct{ file, table, flow, ends, way string }{
	{"flannel", "ip flannel-ipv4", "10.244.0.9 198.51.100.7:443 in=cni0", "1 forward 172.22.7.89 -> 198.51.100.7:443", "forward:1 postrtg:5"},
	{"flannel", "ip flannel-ipv4", "10.244.0.9 10.244.1.7:80 in=cni0", "1 forward 10.244.0.9 -> 10.244.1.7:80", "forward:1 postrtg:2"},
	{"flannel", "ip flannel-ipv4", "172.22.7.200 10.244.0.9:80", "1 forward 172.22.7.200 -> 10.244.0.9:80", "forward:2 postrtg:4"},
	{"flannel", "ip flannel-ipv4", "10.244.0.9 198.51.100.7:443 in=cni0 mark=0x4000", "1 forward 10.244.0.9 -> 198.51.100.7:443", "forward:1 postrtg:1"},
	{"docker", "ip docker-bridges", "172.22.7.200 172.22.7.89:8080", "1 forward 172.22.7.200 -> 172.17.0.2:80", "nat-PREROUTING:1 nat-prerouting-and-output:1 filter-FORWARD:1 filter-forward-in__docker0:3 nat-POSTROUTING:2"},
	{"docker", "ip docker-bridges", "172.22.7.200 172.17.0.2:80 in=eth0", "1 drop 172.22.7.200 -> 172.17.0.2:80", "raw-PREROUTING:1"},
	{"docker", "ip docker-bridges", "172.22.7.200 172.17.0.3:80 in=eth0", "1 drop 172.22.7.200 -> 172.17.0.3:80", "filter-FORWARD:1 filter-forward-in__docker0:4"},
	{"docker", "ip docker-bridges", "172.17.0.2 198.51.100.7:443 in=docker0", "1 forward 172.22.7.89 -> 198.51.100.7:443", "filter-FORWARD:2 filter-forward-out__docker0:2 nat-POSTROUTING:1 nat-postrouting-out__docker0:1"},
	{"firewalld", "inet firewalld", "172.22.7.200 172.22.7.89:22", "1 input 172.22.7.200 -> 172.22.7.89:22", "filter_INPUT:5 filter_INPUT_POLICIES:3 filter_IN_public:1 filter_IN_public:2 filter_IN_public_allow:1"},
	{"firewalld", "inet firewalld", "203.0.113.66 172.22.7.89:22 in=eth0", "1 drop 203.0.113.66 -> 172.22.7.89:22", "filter_INPUT:5 filter_INPUT_POLICIES:3 filter_IN_public:1 filter_IN_public_deny:1"},
	{"firewalld", "inet firewalld", "172.22.7.200 172.22.7.89:81", "1 reject 172.22.7.200 -> 172.22.7.89:81", "filter_INPUT:5 filter_INPUT_POLICIES:3 filter_IN_public:1 filter_IN_public:2 filter_IN_public:4"},
	{"firewalld", "inet firewalld", "192.0.2.7 172.22.7.89:81 in=eth0", "1 input 192.0.2.7 -> 172.22.7.89:81", "filter_INPUT:5 filter_INPUT_POLICIES:1 filter_IN_trusted:1"},
	{"firewalld", "inet firewalld", "10.244.0.9 198.51.100.7:443 in=cni0", "1 reject 10.244.0.9 -> 198.51.100.7:443", "filter_FORWARD:6 filter_FORWARD_POLICIES:1 filter_FORWARD:7 filter_FORWARD:8"},
	{"calico", "ip calico", "10.244.0.9 10.244.0.5:8080 in=cni0", "1 forward 10.244.0.9 -> 10.244.0.5:8080", "raw-PREROUTING:1 filter-FORWARD:1 filter-FORWARD:3 filter-cali-to-wl-dispatch:1 filter-cali-tw-cali1:3 filter-cali-tw-cali1:4 filter-cali-pi-web:1 filter-cali-pi-web:2 filter-cali-tw-cali1:5 filter-FORWARD:4"},
	{"calico", "ip calico", "10.244.0.10 10.244.0.5:8080 in=cni0", "1 drop 10.244.0.10 -> 10.244.0.5:8080", "raw-PREROUTING:1 filter-FORWARD:1 filter-FORWARD:3 filter-cali-to-wl-dispatch:1 filter-cali-tw-cali1:3 filter-cali-tw-cali1:4 filter-cali-tw-cali1:6"},
	{"calico", "ip calico", "10.244.0.5 198.51.100.7:443 in=cali1", "1 forward 172.22.7.89 -> 198.51.100.7:443", "raw-PREROUTING:1 raw-PREROUTING:2 filter-FORWARD:1 filter-FORWARD:2 filter-cali-from-wl-dispatch:1 filter-cali-fw-cali1:4 filter-FORWARD:4 nat-POSTROUTING:1"},
	{"calico", "ip calico", "10.244.0.77 198.51.100.7:443 in=cali1", "1 drop 10.244.0.77 -> 198.51.100.7:443", "raw-PREROUTING:1 raw-PREROUTING:2 raw-PREROUTING:3"},
	{"affinity-learn", "ip portolan", "172.22.7.89 10.96.0.17:80", "1/3 output 172.22.7.89 -> 10.128.0.1:8081; 1/3 output 172.22.7.89 -> 10.128.0.2:8081; 1/3 output 172.22.7.89 -> 10.128.0.3:8081; 0 unknown 172.22.7.89 -> 10.96.0.17:80?", "out:1 lba-3:2 affinity-learn:1"},
	{"affinity-by-port", "ip6 portolan", "2001:db8:77::a9 [fd00:96::17]:80 in=eth0", "1 forward 2001:db8:77::a9 -> [fd00:128::3]:8081", "pre:1 lb-aff-3:1 lb-aff-3:2 recall-8081:1"},
	{"affinity-by-port", "ip6 portolan", "2001:db8:77::aa [fd00:96::17]:80 in=eth0", "1/3 forward 2001:db8:77::aa -> [fd00:128::1]:8081; 1/3 forward 2001:db8:77::aa -> [fd00:128::2]:8081; 1/3 forward 2001:db8:77::aa -> [fd00:128::3]:8081; 0 unknown 2001:db8:77::aa -> [fd00:96::17]:80?", "pre:1 lb-aff-3:1 lb-aff-3:2 lb-aff-3:3"},
	{"slots", "ip portolan", "192.0.2.2 10.96.0.17:80 local", "1/2 output 192.0.2.2 -> 10.128.0.1:8081; 1/2 output 192.0.2.2 -> 10.128.0.2:8081", "out:1 lbl-2:1"},
	{"slots", "ip portolan", "172.22.7.89 10.96.0.17:80", "1/2 output 172.22.7.89 -> 10.128.0.7:8081; 1/2 output 172.22.7.89 -> 10.128.0.8:8081", "out:1 lbl-2:2"},
	{"datamap", "ip kp", "10.128.0.9 10.96.0.12:80 in=eth0", "1 forward 10.128.0.9 -> 10.128.0.1:8081", "nat-prerouting:1 services:1 lb-1:2"},
	{"datamap", "ip kp", "172.22.7.200 10.96.0.12:80", "1 forward 172.22.7.89 -> 10.128.0.1:8081", "nat-prerouting:1 services:1 lb-1:1 lb-1:2 nat-postrouting:1"},
	{"datamap", "ip kp", "172.22.7.89 10.96.0.12:80", "1 output 172.22.7.89 -> 10.128.0.1:8081", "nat-output:1 services:1 lb-1:1 lb-1:2 nat-postrouting:1"},
	{"datamap", "ip kp", "10.128.0.1 10.96.0.12:80 in=eth0", "1 forward 172.22.7.89 -> 10.128.0.1:8081", "nat-prerouting:1 services:1 lb-1:2 nat-postrouting:2"},
	{"datamap", "ip kp", "10.128.0.1 10.96.0.12:81 in=eth0", "1 forward 10.128.0.1 -> 10.96.0.12:81", "nat-prerouting:1"},
}

func TestOthersNFT(t *testing.T) {
	for _, c := range others {
		for _, form := range []string{".nft", ".json"} {
			if c.file == "datamap" && form == ".json" {
				continue
			}
			h := hostOf(t, detect.Options{}, nftFile(t, c.file+form), othersNode)
			ends, way := outcomes(t, h, c.table, c.flow)
			if ends != c.ends || way != c.way {
				t.Errorf("%s%s, %s:\n got %s | %s\nwant %s | %s", c.file, form, c.flow, ends, way, c.ends, c.way)
			}
		}
	}
}

// Ten endpoints of the data-map layout get a tenth each, by ClusterIP and by
// NodePort.
func TestDataMapShares(t *testing.T) {
	h := hostOf(t, detect.Options{}, nftFile(t, "datamap.nft"), othersNode)
	for _, f := range []string{"10.128.0.200 10.96.0.10:80 in=eth0", "172.22.7.200 172.22.7.89:30080"} {
		ends, _ := outcomes(t, h, "ip kp", f)
		if n := strings.Count(ends, "1/10 forward"); n != 10 {
			t.Errorf("%s: %s", f, ends)
		}
	}
}

// Chains that all Services share do not name one; the addresses of Services do.
func TestServiceFrontends(t *testing.T) {
	h := hostOf(t, detect.Options{}, nftFile(t, "datamap.nft"), othersNode)
	names := trace.ServiceFrontends("default/web:http", "tcp", []netip.AddrPort{netip.MustParseAddrPort("10.96.0.12:80")}, 30080)
	tr := trace.New(h, trace.Options{Names: names})
	for f, want := range map[string]string{
		"10.128.0.9 10.96.0.12:80 in=eth0": "default/web:http", "172.22.7.200 172.22.7.89:30080": "default/web:http", "10.128.0.9 10.96.0.10:80 in=eth0": "", "10.128.0.9 10.96.0.12:80 udp in=eth0": "",
	} {
		if got := tr.Trace(flow(t, f)).Outcomes[0].Service; got != want {
			t.Errorf("%s: %q, want %q", f, got, want)
		}
	}
}
