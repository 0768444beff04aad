package arch

import (
	"path"
	"strings"
	"testing"
)

// TestRoomsAreDescribed: docs/architecture.md has a word on every room. A format below
// netfilter is named by the last part of its path.
func TestRoomsAreDescribed(t *testing.T) {
	text := readFile(t, "../../docs/architecture.md")
	for _, p := range list(t) {
		room := strings.TrimPrefix(p.ImportPath, "portolan/")
		named := room
		if path.Dir(room) == "netfilter" && !strings.Contains(text, "`"+room+"`") {
			named = path.Base(room)
		}
		if room == "kernel/conntrack/conntracktest" {
			named = path.Base(room)
		}
		if !strings.Contains(text, "`"+named+"`") {
			t.Errorf("docs/architecture.md says nothing about %s", room)
		}
	}
}
