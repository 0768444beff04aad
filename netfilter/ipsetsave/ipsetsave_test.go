package ipsetsave

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"portolan/netfilter"
)

const text = `create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x1
add KUBE-CLUSTER-IP 10.96.0.10,udp:53
add KUBE-CLUSTER-IP 10.96.0.10,tcp:53
create KUBE-LOOP-BACK hash:ip,port,ip family inet hashsize 1024 maxelem 65536
add KUBE-LOOP-BACK 10.244.0.4,tcp:80,10.244.0.4
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 31532
create NETS hash:net family inet hashsize 1024 maxelem 65536
add NETS 10.0.0.0/8
add NETS 10.1.0.0/16 nomatch
create SIX hash:net,iface family inet6 hashsize 1024 maxelem 65536
add SIX 2001:db8::/32,eth0
create ALL list:set size 8
add ALL NETS
create RANGE hash:ip family inet netmask 24
add RANGE 192.0.2.0
`

func TestParse(t *testing.T) {
	sets, err := Parse("f", text)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*netfilter.Set{}
	for _, s := range sets {
		byName[s.Name] = s
	}
	addr := netip.MustParseAddr
	for _, c := range []struct {
		set  string
		key  netfilter.SetKey
		want bool
	}{
		{"KUBE-CLUSTER-IP", netfilter.SetKey{{Addr: addr("10.96.0.10")}, {Port: 53, Proto: 17}}, true},
		{"KUBE-CLUSTER-IP", netfilter.SetKey{{Addr: addr("10.96.0.10")}, {Port: 54, Proto: 17}}, false},
		{"KUBE-LOOP-BACK", netfilter.SetKey{{Addr: addr("10.244.0.4")}, {Port: 80, Proto: 6}, {Addr: addr("10.244.0.4")}}, true},
		{"KUBE-LOOP-BACK", netfilter.SetKey{{Addr: addr("10.244.0.4")}, {Port: 80, Proto: 6}, {Addr: addr("10.244.0.5")}}, false},
		{"KUBE-NODE-PORT-TCP", netfilter.SetKey{{Port: 31532}}, true},
		{"NETS", netfilter.SetKey{{Addr: addr("10.2.0.1")}}, true},
		{"NETS", netfilter.SetKey{{Addr: addr("10.1.2.3")}}, false},
		{"SIX", netfilter.SetKey{{Addr: addr("2001:db8::7")}, {Name: "eth0"}}, true},
		{"SIX", netfilter.SetKey{{Addr: addr("2001:db8::7")}, {Name: "eth1"}}, false},
		{"RANGE", netfilter.SetKey{{Addr: addr("192.0.2.200")}}, true},
	} {
		if got := byName[c.set].Contains(c.key); got != c.want {
			t.Errorf("%s %+v: %t", c.set, c.key, got)
		}
	}
}

func TestErrorsNameFileAndLine(t *testing.T) {
	for _, bad := range []string{"add NOWHERE 1.2.3.4", "create X hash:ip\nadd X banana", "create X hash:ip,port\nadd X 1.2.3.4", "what is this", "create X hash:ip\ncreate X hash:ip"} {
		if _, err := Parse("f", bad); err == nil || !strings.HasPrefix(err.Error(), "ipsetsave: f:") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(text)
	f.Fuzz(func(t *testing.T, text string) {
		sets, err := Parse("f", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "ipsetsave: f:") {
				t.Fatal(err)
			}
			return
		}
		for _, s := range sets {
			s.Contains(netfilter.SetKey{})
		}
	})
}

// `ipset list` says the same in blocks.
func TestList(t *testing.T) {
	sets, err := Parse("f", `Name: KUBE-CLUSTER-IP
Type: hash:ip,port
Revision: 6
Header: family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x1
Size in memory: 312
References: 2
Number of entries: 2
Members:
10.96.0.10,udp:53
10.96.0.10,tcp:53 timeout 5

Name: NETS
Type: hash:net
Header: family inet hashsize 1024 maxelem 65536
Members:
10.1.0.0/16 nomatch
`)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse("f", `create KUBE-CLUSTER-IP hash:ip,port family inet
add KUBE-CLUSTER-IP 10.96.0.10,udp:53
add KUBE-CLUSTER-IP 10.96.0.10,tcp:53
create NETS hash:net family inet
add NETS 10.1.0.0/16 nomatch
`)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if a, b := sets[i], want[i]; a.Name != b.Name || a.Type != b.Type || a.Family != b.Family || fmt.Sprint(a.Members) != fmt.Sprint(b.Members) {
			t.Errorf("%+v, want %+v", a, b)
		}
	}
}
