package detect

import (
	"slices"
	"testing"

	"portolan/netfilter"
)

// IPVS mode is looked at with ipvsadm and ipset. Both forms that each of them
// prints are recognised and mean the same.
func TestR187Tools(t *testing.T) {
	forms := map[string][2]string{
		"ipvsadm": {
			"IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\nTCP  10.96.0.10:80 rr\n  -> 10.244.0.4:80                Masq    1      0          0\n",
			"-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.4:80 -m -w 1\n",
		},
		"ipset": {
			"Name: KUBE-CLUSTER-IP\nType: hash:ip,port\nRevision: 6\nHeader: family inet hashsize 1024 maxelem 65536\nSize in memory: 248\nReferences: 2\nNumber of entries: 1\nMembers:\n10.96.0.10,tcp:80\n",
			"create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536\nadd KUBE-CLUSTER-IP 10.96.0.10,tcp:80\n",
		},
	}
	for tool, texts := range forms {
		for i, text := range texts {
			if kind := KindOf(text); kind != map[string]Kind{"ipvsadm": IPVS, "ipset": IPSet}[tool] {
				t.Errorf("%s, form %d: taken for %s", tool, i, kind)
			}
		}
	}
	for i := range 2 {
		h, err := Host(Options{}, Text{Name: "servers", Text: forms["ipvsadm"][i]}, Text{Name: "sets", Text: forms["ipset"][i]})
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Servers) != 1 || h.Servers[0].Scheduler != "rr" || len(h.Servers[0].Reals) != 1 || h.Servers[0].Reals[0].Forward != netfilter.IPVSMasq {
			t.Errorf("form %d: servers %+v", i, h.Servers)
		}
		if !slices.ContainsFunc(h.Sets, func(s *netfilter.Set) bool { return s.Name == "KUBE-CLUSTER-IP" && len(s.Members) == 1 }) {
			t.Errorf("form %d: sets %+v", i, h.Sets)
		}
	}
}
