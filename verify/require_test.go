package verify_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"portolan/netfilter/detect"
	"portolan/service"
	"portolan/trace"
	"portolan/verify"
)

// dump is what verify finds of files alone, without Services.
func dump(t *testing.T, services *service.Snapshot, files ...string) []verify.Finding {
	t.Helper()
	var texts []detect.Text
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, detect.Text{Name: f, Text: string(b)})
	}
	h, err := detect.Host(detect.Options{}, texts...)
	if err != nil {
		t.Fatal(err)
	}
	return verify.Verify(verify.Input{Tracer: trace.New(h, trace.Options{Reply: true}), Services: services}).Findings
}

func finding(list []verify.Finding, code verify.Code, object string) *verify.Finding {
	i := slices.IndexFunc(list, func(f verify.Finding) bool { return f.Code == code && f.Object == object })
	if i < 0 {
		return nil
	}
	return &list[i]
}

const (
	dumps  = "../testdata/dumps/"
	node04 = "../trace/testdata/node004ipvs/"
)

// A host that does not forward breaks Services, and this is said.
func TestR153ForwardingOff(t *testing.T) {
	s := newSetup(t, readParts(t, "testdata/base.txtar"), map[string]string{"edit": "host change ip_forward: 1 => ip_forward: 0"})
	f := finding(verify.Verify(s.input(t)).Findings, verify.ForwardingOff, "net.ipv4.ip_forward")
	if f == nil || f.Severity != verify.Error || !strings.Contains(f.Fix, "net.ipv4.ip_forward=1") {
		t.Errorf("%+v", f)
	}
}

// The service network of the document's ipvs cluster is that of its pods, and
// the API server's cluster IP is the address of cni0. The dump and the listing of
// virtual servers tell.
func TestR197ServiceNetworkOverPods(t *testing.T) {
	list := dump(t, nil, dumps+"004-kubeadm-v1.34.2-flannel-ipvs-mode.nat.restore.txt", dumps+"004-ipvsadm-Ln.txt", node04+"host.yaml", node04+"ipset.save")
	if f := finding(list, verify.RangeOverlap, "cluster IPs and 10.244.0.0/24"); f == nil || f.Severity != verify.Error {
		t.Errorf("%+v", list)
	}
	if f := finding(list, verify.AddressTaken, "10.244.0.1"); f == nil || !strings.Contains(f.Actual, "interface cni0") {
		t.Errorf("%+v", list)
	}
	if len(list) != 2 {
		t.Errorf("%d findings", len(list))
	}
}

// With host-gw on a fabric that answers for everybody, the peer has the
// gateway's MAC; the routes to add are listed.
func TestR206SharedMAC(t *testing.T) {
	list := dump(t, nil, dumps+"004-route-n.flannel-host-gw.txt", dumps+"004-arp-n.host-gw-aliyun.txt")
	f := finding(list, verify.GatewayMAC, "neighbours of ee:ff:ff:ff:ff:ff")
	if f == nil || !strings.Contains(f.Fix, "10.244.1.0/24 by instance 172.22.7.90") {
		t.Fatalf("%+v", list)
	}
	// With vxlan the same neighbours are no news.
	if list := dump(t, nil, dumps+"004-route-n.flannel-vxlan.txt", dumps+"004-arp-n.host-gw-aliyun.txt"); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}
