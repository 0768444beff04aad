package nftables

import (
	"strings"
	"testing"

	"portolan/internal/netnstest"
)

// TestProbe: this kernel has everything, and the probe leaves nothing behind.
func TestProbe(t *testing.T) {
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			netnstest.Enter(t)
			b := live(t, f.Family)
			if err := b.Probe(); err != nil {
				t.Error(err)
			}
			if tables, err := b.options.Conn.Tables(b.table.Family); err != nil || len(tables) > 0 {
				t.Errorf("left behind: %v, %v", tables, err)
			}
		})
	}
}

// TestProbeNames: what the kernel does not take is named, and nothing else.
func TestProbeNames(t *testing.T) {
	netnstest.Enter(t)
	b := live(t, families[0].Family)
	impossible := feature{name: "translation of forwarded packets", hook: "type nat hook forward priority 0; policy accept;"}
	err := b.lacking(append(b.words.features(), impossible))
	if err == nil || strings.Count(err.Error(), "lacks") != 1 ||
		!strings.Contains(err.Error(), "lacks translation of forwarded packets") || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("a nat chain in the forward hook: %v", err)
	}
}
