package judge

import (
	"testing"
	"time"

	"portolan/lab"
	"portolan/netfilter"
	"portolan/service"
	"portolan/source/kube"
)

func TestTry(t *testing.T) {
	for _, v := range []lab.Variant{lab.Legacy, lab.NFT} {
		t.Run(string(v), func(t *testing.T) {
			begin := time.Now()
			g := newGenerator(seed)
			w := newWorld(t, v)
			t.Log("lab", time.Since(begin))
			objects := nodes()
			for i := range 60 {
				objects = append(objects, g.service(i)...)
			}
			text, err := documents(objects)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.program(t.Context(), text, []string{"--cluster-cidr", clusterCIDR(), "--proxy-mode", "iptables"}); err != nil {
				t.Fatal(err)
			}
			t.Log("program", time.Since(begin))
			if err := w.watch(t.Context()); err != nil {
				t.Fatal(err)
			}
			h, err := w.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Log("read", time.Since(begin))
			cluster := lab.PodNetworks
			snap, err := w.model(t.Context(), kube.Settings{NodeName: judged, DetectMode: kube.DetectClusterCIDR, ClusterCIDRs: cluster, NodePorts: service.NodePortAddresses{Localhost: true}})
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(newRuleset(h, v, w.devices))
			s := &sender{w: w, g: g}
			var probes []probe
			for _, x := range targets(snap) {
				for _, from := range []string{visitor, judged, outside, "here-1"} {
					p := probe{dst: x.Addr, dport: x.Port, proto: netfilter.TCP}
					if x.Protocol == service.UDP {
						p.proto = netfilter.UDP
					}
					p, err := s.from(p, from)
					if err != nil {
						t.Fatal(err)
					}
					probes = append(probes, s.stamp(p))
				}
			}
			bad, n := 0, 0
			for len(probes) > 0 {
				k := min(100, len(probes))
				fs, err := s.batch(b, probes[:k])
				if err != nil {
					t.Fatal(err)
				}
				probes = probes[k:]
				for _, f := range fs {
					n++
					if len(f.diffs) > 0 {
						bad++
						if bad < 6 {
							t.Errorf("%v", f)
						}
					}
				}
			}
			t.Log("judged", n, "bad", bad, time.Since(begin))
		})
	}
}
