package trace_test

import (
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
)

// node004ipvs is the node of document 004 in ipvs mode: its rules, its listing of
// virtual servers, its sets.
func node004ipvs(t testing.TB) *netfilter.Host {
	return load(t, detect.Options{}, shared+"dumps/004-kubeadm-v1.34.2-flannel-ipvs-mode.nat.restore.txt", shared+"dumps/004-ipvsadm-Ln.txt",
		"testdata/node004ipvs/host.yaml", "testdata/node004ipvs/ipset.save")
}

// ipvsSteps lists what IPVS did, and where.
func ipvsSteps(o trace.Outcome) string {
	var out []string
	for _, s := range o.Steps {
		if s.Table == "ipvs" {
			out = append(out, s.Hook.String()+" "+s.Chain+" -> "+s.Target)
		}
	}
	return strings.Join(out, "; ")
}

// A packet to a virtual server's address is local, so it goes to INPUT;
// there IPVS rewrites it and sends it on, not to FORWARD, but by OUTPUT and
// POSTROUTING.
func TestR157R158Hooks(t *testing.T) {
	o := only(t, node004ipvs(t), "172.22.7.200 10.244.142.146:80 in=eth0")
	equal(t, "hooks", hooks(o), "prerouting input output postrouting")
	equal(t, "ipvs", ipvsSteps(o), "input TCP 10.244.142.146:80 rr -> 10.244.0.4:80")
	equal(t, "dst", dst(o), "10.244.0.4:80")
	if o.Verdict != trace.Forwarded || !o.DNAT {
		t.Errorf("%s, dnat %t", o.Verdict, o.DNAT)
	}
	// The answer gets the cluster IP back in FORWARD.
	if r := o.Reply; r.Verdict != trace.Forwarded || r.Src.String() != "10.244.142.146" || r.SrcPort != 80 || r.Dst.String() != "172.22.7.200" {
		t.Errorf("reply %+v", r)
	}
}

// An address that is not local never comes to IPVS.
func TestR159AddressesMustBeLocal(t *testing.T) {
	h := node004ipvs(t)
	h.Interfaces = h.Interfaces[:len(h.Interfaces)-1]
	o := only(t, h, "172.22.7.200 10.244.142.146:80 in=eth0")
	if o.DNAT || ipvsSteps(o) != "" || o.Verdict != trace.Forwarded {
		t.Errorf("%s %s", o.Verdict, ipvsSteps(o))
	}
}

// IPVS does not change sources; iptables does, in POSTROUTING.
func TestR163SourceByIptables(t *testing.T) {
	o := only(t, node004ipvs(t), "172.22.7.200 172.22.7.89:31532 in=eth0")
	equal(t, "nat", path(o, "nat"), "PREROUTING:1 KUBE-SERVICES:3 KUBE-NODE-PORT:1 KUBE-MARK-MASQ:1 POSTROUTING:1 KUBE-POSTROUTING:3 KUBE-POSTROUTING:4")
	equal(t, "source", o.Src.String(), "10.244.0.1")
	if r := o.Reply; r.Verdict != trace.Forwarded || r.Src.String() != "172.22.7.89" || r.SrcPort != 31532 || r.Dst.String() != "172.22.7.200" {
		t.Errorf("reply %+v", r)
	}
	// Without net.ipv4.vs.conntrack the mark is for nothing: nobody knows the
	// connection any more.
	h := node004ipvs(t)
	h.Sysctls["net.ipv4.vs.conntrack"] = "0"
	if o := only(t, h, "172.22.7.200 172.22.7.89:31532 in=eth0"); o.Masquerade || o.Src.String() != "172.22.7.200" || !o.DNAT {
		t.Errorf("masquerade %t %s", o.Masquerade, o.Src)
	}
}

// The entry is PREROUTING or OUTPUT, by where the client is.
func TestR164Entry(t *testing.T) {
	outside := only(t, node004ipvs(t), "172.22.7.200 10.244.142.146:80 in=eth0")
	if p := path(outside, "nat"); !strings.HasPrefix(p, "PREROUTING:1 KUBE-SERVICES:3 KUBE-SERVICES:4 ") {
		t.Error(p)
	}
	// A local client has the cluster IP as its own source, which is what src,dst of
	// KUBE-CLUSTER-IP is for.
	local := only(t, node004ipvs(t), "10.244.142.146 10.244.142.146:80 local")
	equal(t, "hooks", hooks(local), "output output postrouting")
	equal(t, "ipvs", ipvsSteps(local), "output TCP 10.244.142.146:80 rr -> 10.244.0.4:80")
	if p := path(local, "nat"); !strings.HasPrefix(p, "OUTPUT:1 KUBE-SERVICES:2 KUBE-MARK-MASQ:1") || local.Src.String() != "10.244.0.1" || local.Verdict != trace.Output {
		t.Errorf("%s %s %s", p, local.Src, local.Verdict)
	}
	if r := local.Reply; r.Verdict != trace.Input || r.Src.String() != "10.244.142.146" || r.Dst.String() != "10.244.142.146" {
		t.Errorf("reply %+v", r)
	}
}

// IPVS picks packets up at LOCAL_IN and LOCAL_OUT, behind filter and nat.
func TestR167PickedUp(t *testing.T) {
	h := node004ipvs(t)
	filter := hostOf(t, detect.Options{}, "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -d 10.244.142.146/32 -p tcp --dport 80 -m comment --comment seen\n-A OUTPUT -d 10.244.0.4/32 -p tcp --dport 80 -m comment --comment sent\nCOMMIT\n")
	h.Tables = append(h.Tables, filter.Tables...)
	equal(t, "filter", path(only(t, h, "172.22.7.200 10.244.142.146:80 in=eth0"), "filter"), "INPUT:1 OUTPUT:1")
	equal(t, "filter", path(only(t, h, "10.244.142.146 10.244.142.146:80 local"), "filter"), "OUTPUT:1")
}

// The listing is read; one virtual server for each cluster IP, port
// and protocol, and for a NodePort one on every address but loopback.
func TestR189R190R191Listing(t *testing.T) {
	h := node004ipvs(t)
	if len(h.Servers) != 9 {
		t.Fatalf("%d virtual servers", len(h.Servers))
	}
	dns := h.ServerFor(netfilter.UDP, mustAddr("10.244.0.10"), 53, 0)
	if dns == nil || dns.Scheduler != "rr" || len(dns.Reals) != 2 || dns.Reals[1].Weight != 1 || dns.Reals[1].Forward != netfilter.IPVSMasq {
		t.Errorf("%+v", dns)
	}
	if api := h.ServerFor(netfilter.TCP, mustAddr("10.244.0.1"), 443, 0); api.Reals[0].Active != 3 {
		t.Errorf("the API server's: %+v", api)
	}
	for addr, want := range map[string]bool{"172.17.0.1": true, "172.22.7.89": true, "10.244.0.0": true, "10.244.0.1": true, "127.0.0.1": false} {
		if got := h.ServerFor(netfilter.TCP, mustAddr(addr), 31532, 0) != nil; got != want {
			t.Errorf("NodePort at %s: %t", addr, got)
		}
	}
	equal(t, "shares", strings.Join(ends(t, h, "172.22.7.200 10.244.0.10:53 udp in=eth0"), ", "), "1/2 forward 10.244.0.2:53, 1/2 forward 10.244.0.3:53")
}

// The number of rules does not depend on the number of Services.
func TestR192Chains(t *testing.T) {
	var chains []string
	for _, c := range node004ipvs(t).Table(netfilter.IPv4, 0, "nat").Chains() {
		if c.Hook == netfilter.NoHook {
			chains = append(chains, c.Name)
		}
	}
	equal(t, "chains", strings.Join(chains, " "), "FLANNEL-POSTRTG KUBE-KUBELET-CANARY KUBE-LOAD-BALANCER KUBE-MARK-MASQ KUBE-NODE-PORT KUBE-POSTROUTING KUBE-SERVICES")
}

// An endpoint that calls its own Service is masqueraded by
// KUBE-LOOP-BACK.
func TestR196Hairpin(t *testing.T) {
	o := only(t, node004ipvs(t), "10.244.0.4 10.244.142.146:80 in=cni0")
	if p := path(o, "nat"); !strings.HasSuffix(p, "POSTROUTING:1 KUBE-POSTROUTING:1") || o.Src.String() != "10.244.0.1" {
		t.Errorf("%s %s", p, o.Src)
	}
}
