package trace_test

import (
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/netfilter/iptsave"
	"portolan/trace"
)

// The tables are raw, mangle, nat, filter, and security, which the text
// leaves out; others are refused.
func TestR1Tables(t *testing.T) {
	for _, name := range []string{"filter", "nat", "mangle", "raw", "security"} {
		if _, err := iptsave.Parse("f", "*"+name+"\nCOMMIT\n", iptsave.Options{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := iptsave.Parse("f", "*broute\nCOMMIT\n", iptsave.Options{}); err == nil {
		t.Error("table broute was accepted")
	}
}

// Which table has which built-in chains; nat has INPUT too.
func TestR2BuiltinChains(t *testing.T) {
	for table, want := range map[string]string{
		"filter": "input forward output", "security": "input forward output", "raw": "prerouting output",
		"nat": "prerouting input output postrouting", "mangle": "prerouting input forward output postrouting",
	} {
		var got []string
		for _, h := range netfilter.TableHooks(table) {
			got = append(got, h.String())
		}
		equal(t, table, strings.Join(got, " "), want)
	}
}

// The three ways through the hooks.
func TestR4R5R6Ways(t *testing.T) {
	h := hostOf(t, detect.Options{}, plainHost)
	equal(t, "R4 to the host", hooks(only(t, h, "203.0.113.9 192.0.2.1:22 in=eth0")), "prerouting input")
	equal(t, "R5 from the host", hooks(only(t, h, "192.0.2.1 203.0.113.9:22")), "output postrouting")
	equal(t, "R6 routed", hooks(only(t, h, "203.0.113.9 198.51.100.7:22 in=eth0")), "prerouting forward postrouting")
}

// A source outside the pod range is marked, one inside is not.
func TestR8ExternalByCIDR(t *testing.T) {
	outside := only(t, kind002(t), "192.0.2.9 10.96.237.231:80 in=eth0")
	if !outside.Masquerade || !strings.Contains(path(outside, "nat"), "KUBE-SVC-3CRYVFGPLWYNKULQ:1 KUBE-MARK-MASQ:1") {
		t.Errorf("outside: %s", path(outside, "nat"))
	}
	inside := only(t, kind002(t), "10.244.0.9 10.96.237.231:80 in=veth3")
	if inside.Masquerade || strings.Contains(path(inside, "nat"), "KUBE-MARK-MASQ") {
		t.Errorf("inside: %s", path(inside, "nat"))
	}
}

// KUBE-POSTROUTING returns what has no mark, else takes the mark away
// and masquerades.
func TestR46Postrouting(t *testing.T) {
	marked := only(t, node004(t), "172.22.7.200 172.22.7.89:31532")
	if p := path(marked, "nat"); !strings.HasSuffix(p, "POSTROUTING:1 KUBE-POSTROUTING:2 KUBE-POSTROUTING:3") {
		t.Error(p)
	}
	for _, s := range marked.Steps {
		if s.Chain == "KUBE-POSTROUTING" && s.Action == trace.ActMark && (s.Mark != 0x4000 || s.Target != "0x0") {
			t.Errorf("xor: mark 0x%x becomes %s", s.Mark, s.Target)
		}
	}
	plain := only(t, node004(t), "10.244.0.9 10.106.224.38:80")
	if p := path(plain, "nat"); !strings.Contains(p, "POSTROUTING:1 KUBE-POSTROUTING:1 ") {
		t.Error(p)
	}
}

// An endpoint that calls its own Service is marked (hairpin), others
// are not.
func TestR52R177Hairpin(t *testing.T) {
	self := only(t, node004(t), "10.244.0.4 10.106.224.38:80")
	if !strings.Contains(path(self, "nat"), "KUBE-SEP-AAOCRVJBUI2XUHEI:1 KUBE-MARK-MASQ:1 KUBE-SEP-AAOCRVJBUI2XUHEI:2") || self.Src.String() != "10.244.0.1" {
		t.Error(path(self, "nat"), self.Src)
	}
	other := only(t, node004(t), "10.244.0.9 10.106.224.38:80")
	if strings.Contains(path(other, "nat"), "KUBE-SEP-AAOCRVJBUI2XUHEI:1 ") {
		t.Error(path(other, "nat"))
	}
}

// A NodePort goes from KUBE-NODEPORTS to KUBE-EXT, which marks and
// passes on to the policy chain.
func TestR58R75NodePort(t *testing.T) {
	p := path(only(t, node004(t), "172.22.7.200 172.22.7.89:31532"), "nat")
	if !strings.Contains(p, "KUBE-NODEPORTS:2 KUBE-EXT-2CMXP7HKUVJN7L6M:1 KUBE-MARK-MASQ:1 KUBE-EXT-2CMXP7HKUVJN7L6M:2 KUBE-SVC-2CMXP7HKUVJN7L6M:2") {
		t.Error(p)
	}
}

// The ClusterIP of a NodePort Service is captured like any other.
func TestR63R113ClusterIP(t *testing.T) {
	o := only(t, node004(t), "10.244.0.9 10.106.224.38:80")
	equal(t, "way", path(o, "nat"), "PREROUTING:1 KUBE-SERVICES:5 KUBE-SVC-2CMXP7HKUVJN7L6M:2 KUBE-SEP-AAOCRVJBUI2XUHEI:2 POSTROUTING:1 KUBE-POSTROUTING:1 POSTROUTING:3 FLANNEL-POSTRTG:2")
	equal(t, "service", o.Service, "default/nginx")
}
