package linux

import (
	"testing"

	"portolan/dataplane"
	"portolan/podnet"
)

// 500 peers: all written to an empty kernel, looked at with nothing to write, and
// one of them changed. The second figure of each is objects written.
func BenchmarkPeers(b *testing.B) {
	for _, conf := range []string{vxlanConf, hostGWConf} {
		w := newCluster(b, conf, 500)
		name := string(w.config.Backend.Type)
		b.Run(name+"/write", func(b *testing.B) {
			inNamespace(b)
			n := w.open(b, podnet.IPv4)
			for b.Loop() {
				s := dataplane.NewSync(n)
				w.set(b, s, podnet.IPv4)
				b.ReportMetric(float64(sync(b, s).Created), "objects")
				b.StopTimer()
				sync(b, dataplane.NewSync(n))
				b.StartTimer()
			}
		})
		b.Run(name+"/restart", func(b *testing.B) {
			inNamespace(b)
			n := w.open(b, podnet.IPv4)
			s := dataplane.NewSync(n)
			w.set(b, s, podnet.IPv4)
			sync(b, s)
			for b.Loop() {
				s := dataplane.NewSync(n)
				w.set(b, s, podnet.IPv4)
				b.ReportMetric(float64(sync(b, s).Writes), "writes")
			}
		})
		b.Run(name+"/change", func(b *testing.B) {
			inNamespace(b)
			n := w.open(b, podnet.IPv4)
			s := dataplane.NewSync(n)
			w.set(b, s, podnet.IPv4)
			sync(b, s)
			for version := 1; b.Loop(); version++ {
				w.nodes[7] = w.peer(8, version%200)
				w.set(b, s, podnet.IPv4)
				r, err := s.Apply(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(r.Created+r.Replaced+r.Deleted), "objects")
			}
		})
	}
}
