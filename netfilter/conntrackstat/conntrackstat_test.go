package conntrackstat

import (
	"strings"
	"testing"

	"portolan/netfilter"
)

func TestParse(t *testing.T) {
	want := netfilter.ConntrackCounts{InsertFailed: 19, Drop: 3, EarlyDrop: 1}
	for name, text := range map[string]string{
		"conntrack -S": "cpu=0   \tfound=0 invalid=4 insert=0 insert_failed=3 drop=3 early_drop=0 error=0 search_restart=0\ncpu=1   \tfound=0 invalid=0 insert=0 insert_failed=16 drop=0 early_drop=1 error=0 search_restart=0\n",
		"/proc":        "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error\n00000005  00000000 00000000 00000000 00000004 00000000 00000000 00000000 00000000 00000003 00000003 00000000 00000000\n00000005  00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000010 00000000 00000001 00000000\n",
	} {
		got, err := Parse(name, text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := Parse("f", "cpu=0 drop=many"); err == nil || !strings.Contains(err.Error(), "f:1: drop") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("cpu=0 insert_failed=3 drop=3\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Parse("f", text); err != nil && !strings.HasPrefix(err.Error(), "conntrackstat: f:") {
			t.Fatal(err)
		}
	})
}
