package iptsave

import (
	"strings"
	"testing"
)

// A dump that was cut short is refused: what is missing might decide.
func TestDumpThatWasCut(t *testing.T) {
	whole := "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j RETURN\nCOMMIT\n*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"
	if _, err := Parse("whole", whole, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, cut := range []string{whole[:30], whole[:strings.LastIndex(whole, "COMMIT")], strings.Replace(whole, "COMMIT\n", "", 1)} {
		if _, err := Parse("cut", cut, Options{}); err == nil || !strings.Contains(err.Error(), "COMMIT") {
			t.Errorf("%q: %v", cut, err)
		}
	}
}
