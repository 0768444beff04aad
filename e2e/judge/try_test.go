package judge

import (
	"os"
	"strconv"
	"testing"
	"time"

	"portolan/lab"
)

func TestTry(t *testing.T) {
	n := 3
	if x := os.Getenv("ROUNDS"); x != "" {
		n, _ = strconv.Atoi(x)
	}
	bad, all := 0, 0
	for i := range n {
		for _, v := range []lab.Variant{lab.Legacy, lab.NFT} {
			s := seed + uint64(i)
			begin := time.Now()
			w := newWorld(t, v)
			r, err := w.prepare(t.Context(), newGenerator(s), 50)
			if err != nil {
				t.Fatalf("seed %d %s: %v", s, v, err)
			}
			ready := time.Since(begin)
			here := 0
			for range 4 {
				probes, err := r.probes(100)
				if err != nil {
					t.Fatal(err)
				}
				fs, err := r.batch(r.bench, probes)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range fs {
					all++
					if len(f.diffs) > 0 {
						bad++
						if here++; here < 3 && bad < 25 {
							t.Errorf("seed %d %s: %v", s, v, f)
						}
					}
				}
			}
			t.Log("round", s, v, "bad", here, ready, time.Since(begin))
		}
	}
	t.Log("judged", all, "bad", bad)
}
