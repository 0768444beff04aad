package lab

import (
	"net/netip"
	"os"
	"testing"
	"time"
)

// newLab builds a lab for a test, which needs root.
func newLab(t *testing.T, topology Topology) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	l, err := New(topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

const patience = 10 * time.Second // for answers that come at once on a quiet machine

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// TestPlainNetwork: without any rule, everybody reaches every pod in both families
// and protocols, and the pod sees the caller's own address.
func TestPlainNetwork(t *testing.T) {
	l := newLab(t, Numbered(2, 2, 8080))
	callers := []*Host{l.Client, &l.Node("node1").Host, &l.Node("node2").Host, &l.Pod("pod-1-1").Host, &l.Pod("pod-2-2").Host}
	for _, from := range callers {
		for _, proto := range []string{"tcp", "udp"} {
			for _, p := range []string{"pod-1-1", "pod-1-2", "pod-2-1", "pod-2-2"} {
				for _, a := range l.Pod(p).Addrs {
					o := from.Dial(proto, netip.AddrPortFrom(a, 8080), patience)
					if o.Verdict != Answered || o.Pod != p || o.Seen != o.Local {
						t.Errorf("%s to %s at %v over %s: %v (own address %v)", from.Name, p, a, proto, o, o.Local)
					}
				}
			}
		}
	}
}
