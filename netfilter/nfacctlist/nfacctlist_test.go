package nfacctlist

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := Parse("f", "{ pkts = 00000000000000000001, bytes = 00000000000000000060 } = localhost_nps_accepted_pkts;\n\n{ pkts = 00000000000000000000, bytes = 00000000000000000000, quota = 00000000000000000009, mode = packet } = limited;\n")
	if err != nil || !slices.Equal(got, []string{"localhost_nps_accepted_pkts", "limited"}) {
		t.Errorf("%v %v", got, err)
	}
	if _, err := Parse("f", "something"); err == nil || !strings.Contains(err.Error(), "f:1: ") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("{ pkts = 1, bytes = 2 } = a;")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Parse("f", text); err != nil && !strings.HasPrefix(err.Error(), "nfacctlist: f:") {
			t.Fatal(err)
		}
	})
}
