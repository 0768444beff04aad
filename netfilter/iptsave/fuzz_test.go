package iptsave

import (
	"os"
	"strings"
	"testing"

	"portolan/netfilter"
)

func seeds(f *testing.F) {
	entries, err := os.ReadDir(dumps)
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		f.Add(readDump(f, e.Name()))
	}
	f.Add("*raw\n-A PREROUTING -m u32 --u32 \"0>>22&0x3C@12>>26=1\" -j CT --notrack\nCOMMIT\n")
	f.Add("*mangle\n-A PREROUTING -m bpf --bytecode \"4,48 0 0 9,21 0 1 6,6 0 0 1,6 0 0 0\" -j TPROXY --on-port 1 --on-ip 127.0.0.1 --tproxy-mark 1/1\n")
}

// FuzzParse: any text gives tables or an error that names file and line; what
// was parsed once parses again from its own text to the same rule.
func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse("f", text, Options{})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "iptsave: f:") {
				t.Fatalf("the error does not name file and line: %v", err)
			}
			return
		}
		for _, tab := range d.Tables {
			for _, c := range tab.Chains() {
				for i := range c.Rules {
					again(t, tab, c, &c.Rules[i])
				}
			}
		}
	})
}

func again(t *testing.T, tab *netfilter.Table, c *netfilter.Chain, r *netfilter.Rule) {
	d, err := Parse("g", "*"+tab.Name+"\n"+r.Text+"\nCOMMIT\n", Options{Family: tab.Family})
	if err != nil {
		t.Fatalf("%q does not parse again: %v", r.Text, err)
	}
	if len(d.Tables) != 1 || d.Tables[0].Chain(c.Name) == nil {
		return // a -4 line in an IPv6 file, or the like
	}
	got := d.Tables[0].Chain(c.Name).Rules
	if len(got) != 1 || len(got[0].Matches) != len(r.Matches) {
		t.Fatalf("%q parsed to %d matches, then to %+v", r.Text, len(r.Matches), got)
	}
}

// FuzzListing: any text gives tables or an error with file and line.
func FuzzListing(f *testing.F) {
	seeds(f)
	f.Add("Chain INPUT (policy ACCEPT)\ntarget     prot opt source               destination\nACCEPT     all  --  anywhere             anywhere            state RELATED,ESTABLISHED\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := ParseListing("f", text, Options{}); err != nil && !strings.HasPrefix(err.Error(), "iptsave: f:") {
			t.Fatalf("the error does not name file and line: %v", err)
		}
	})
}
