package ipvssave

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan/netfilter"
)

// The same servers as ipvsadm -Ln, ipvsadm -Sn and /proc/net/ip_vs have them.
const (
	listing = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.96.0.1:443 wrr persistent 10800
  -> 172.22.7.89:6443             Masq    1      3          0
UDP  10.96.0.10:53 rr ops
  -> 10.244.0.2:53                Masq    2      0          7
  -> 10.244.0.3:53                Tunnel  0      0          0
TCP  [2001:db8::a]:80 sh
  -> [2001:db8:1::5]:8080         Masq    1      0          0
SCTP 10.96.0.12:9999 lc
FWM  7 rr persistent 60 mask 255.255.255.0
  -> 192.0.2.7:80                 Route   1      0          0
FWM  8 IPv6 rr
`
	saved = `-A -t 10.96.0.1:443 -s wrr -p 10800
-a -t 10.96.0.1:443 -r 172.22.7.89:6443 -m -w 1
-A -u 10.96.0.10:53 -s rr -o
-a -u 10.96.0.10:53 -r 10.244.0.2:53 -m -w 2
-a -u 10.96.0.10:53 -r 10.244.0.3:53 -i -w 0 --tun-type ipip
-A -t [2001:db8::a]:80 -s sh
-a -t [2001:db8::a]:80 -r [2001:db8:1::5]:8080 -m -w 1
-A --sctp-service 10.96.0.12:9999 -s lc
-A -f 7 -s rr -p 60 -M 255.255.255.0
-a -f 7 -r 192.0.2.7:80 -g -w 1
-A -f 8 -6 -s rr
`
	proc = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB wrr persistent 10800000 FFFFFFFF
  -> AC160759:192B      Masq    1      3          0
UDP  0A60000A:0035 rr ops
  -> 0AF40002:0035      Masq    2      0          7
  -> 0AF40003:0035      Tunnel  0      0          0
TCP  [2001:0db8:0000:0000:0000:0000:0000:000a]:0050 sh
  -> [2001:0db8:0001:0000:0000:0000:0000:0005]:1F90      Masq    1      0          0
SCTP 0A60000C:270F lc
FWM  00000007 rr persistent 60000 FFFFFF00
  -> C0000207:0050      Route   1      0          0
`
)

// The three forms of the same servers mean the same.
func TestForms(t *testing.T) {
	want := parse(t, listing)
	if len(want) != 6 {
		t.Fatalf("%d servers", len(want))
	}
	// A saved form does not have connections, /proc not the family of marks.
	bare := func(list []netfilter.VirtualServer) (out []netfilter.VirtualServer) {
		for _, s := range list {
			s.Reals = append([]netfilter.RealServer(nil), s.Reals...)
			for i := range s.Reals {
				s.Reals[i].Active, s.Reals[i].Inactive = 0, 0
			}
			out = append(out, s)
		}
		return out
	}
	if d := diff(bare(want), parse(t, saved)); d != "" {
		t.Errorf("saved: %s", d)
	}
	if d := diff(want[:5], parse(t, proc)); d != "" {
		t.Errorf("/proc: %s", d)
	}
}

func parse(t *testing.T, text string) []netfilter.VirtualServer {
	t.Helper()
	list, err := Parse("f", text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func diff(a, b []netfilter.VirtualServer) string {
	return cmp.Diff(a, b, cmp.Comparer(func(x, y netip.Addr) bool { return x == y }))
}

func TestListingOfTheDocument(t *testing.T) {
	b, err := os.ReadFile("../../testdata/dumps/004-ipvsadm-Ln.txt")
	if err != nil {
		t.Fatal(err)
	}
	if list := parse(t, string(b)); len(list) != 9 || len(list[8].Reals) != 2 {
		t.Errorf("%+v", list)
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"TCP api:https rr\n":                                                      "f:1: \"api:https\" is no address with a port in numbers",
		"-> 1.2.3.4:80 Masq 1 0 0\n":                                              "f:1: a real server before any",
		"TCP 1.2.3.4:80 rr\n-> 1.2.3.4:80 Masq 1\n":                               "f:2: real server",
		"TCP 1.2.3.4:80 rr\n-> 1.2.3.4:80 Post 1 0 0\n":                           "f:2: \"Post\" is no way",
		"GRE 1.2.3.4:80 rr\n":                                                     "f:1: protocol \"GRE\"",
		"TCP 1.2.3.4:80\n":                                                        "no scheduler",
		"-A -t 1.2.3.4:80 -s rr\n-A -t 1.2.3.4:80 -s rr\n":                        "f:2: the virtual server is there already",
		"-a -t 1.2.3.4:80 -r 1.1.1.1:80 -m\n":                                     "was not added",
		"-A -t 1.2.3.4:80 -s rr --fruit\n":                                        "option \"--fruit\"",
		"-A -t 1.2.3.4:80 -s rr\n-a -t 1.2.3.4:80 -m\n":                           "without an address",
		"-A -f 0 -s rr\n":                                                         "mark \"0\"",
		"IPVS connection entries\n":                                               "names no virtual servers",
		"Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes\n": "use ipvsadm -Ln",
	} {
		if _, err := Parse("f", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	b, err := os.ReadFile("../../testdata/dumps/004-ipvsadm-Ln.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Add("-A -t 1.2.3.4:80 -s rr -p 60 -M 24\n-a -t 1.2.3.4:80 -r 1.1.1.1:80 -m -w 1\n")
	f.Add("TCP  0A600001:01BB wrr persistent 10800000 FFFFFFFF\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Parse("f", text)
		if err != nil && !strings.HasPrefix(err.Error(), "ipvssave: f:") {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Mark == 0 && !s.Addr.IsValid() {
				t.Fatal(fmt.Sprint(s))
			}
		}
	})
}
