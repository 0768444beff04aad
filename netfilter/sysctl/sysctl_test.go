package sysctl

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	m, err := Parse("f", "net.ipv4.ip_forward = 1\nsysctl: permission denied on key 'x'\nnet.ipv4.conf.eth0/100.rp_filter = 2\nnet/ipv4/conf/eth0.200/rp_filter=1\nkernel.x =\n")
	if err != nil || m["net.ipv4.ip_forward"] != "1" || m["net.ipv4.conf.eth0/100.rp_filter"] != "2" || m["net.ipv4.conf.eth0/200.rp_filter"] != "1" {
		t.Errorf("%v %v", m, err)
	}
	if _, err := Parse("f", "a = 1\nwhat is this\n"); err == nil || !strings.HasPrefix(err.Error(), "sysctl: f:2: ") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("net.ipv4.ip_forward = 1\nnet/ipv4/conf/eth0.200/rp_filter=1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Parse("f", text); err != nil && !strings.HasPrefix(err.Error(), "sysctl: f:") {
			t.Fatal(err)
		}
	})
}
