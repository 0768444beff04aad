package conntracklist

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func golden(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("../../testdata/golden/observed-nft.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(regexp.MustCompile(`(?m)^(tcp|udp) .*$`).FindAllString(string(b), -1), "\n")
}

// The entries of the recorded run: every one of a Service is rewritten, those
// of E3, E10, E11 and the ip_forward=0 pod flows not in the source.
func TestParseRecorded(t *testing.T) {
	es, err := Parse("f", golden(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(es) != 14 {
		t.Fatalf("%d entries", len(es))
	}
	e := es[0]
	if e.Proto != 6 || e.State != "TIME_WAIT" || e.Orig.DstPort != 31532 || e.Reply.Src.String() != "10.244.0.4" || !e.Assured || e.Unreplied || !e.HasDNAT() || !e.HasSNAT() {
		t.Errorf("%+v", e)
	}
	if es[2].HasSNAT() || !es[2].HasDNAT() || es[9].HasDNAT() {
		t.Errorf("%+v %+v", es[2], es[9])
	}
}

func TestParseForms(t *testing.T) {
	es, err := Parse("f", `udp      17 29 src=172.22.7.200 dst=10.96.0.10 sport=40002 dport=53 [UNREPLIED] src=10.96.0.10 dst=172.22.7.200 sport=53 dport=40002 mark=0 use=1
ipv6     10 tcp      6 431999 ESTABLISHED src=fd00::1 dst=fd00::2 sport=1 dport=2 packets=3 bytes=4 src=fd00::2 dst=fd00::1 sport=2 dport=1 packets=1 bytes=2 [ASSURED] mark=7 zone=3 use=2
icmp     1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=77 src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=77 mark=0 use=1
conntrack v1.4.7 (conntrack-tools): 3 flow entries have been shown.
`)
	if err != nil || len(es) != 3 || !es[0].Unreplied || es[1].Mark != 7 || es[1].Zone != 3 || es[2].Orig.SrcPort != 77 || es[2].Orig.DstPort != 8<<8 {
		t.Errorf("%+v %v", es, err)
	}
	if _, err := Parse("f", "tcp 6 1 CLOSE src=1.1.1.1 dst=2.2.2.2 sport=1 dport=2\n"); err == nil || !strings.HasPrefix(err.Error(), "conntracklist: f:1: ") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(golden(f))
	f.Add("icmp 1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=77 src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=77 mark=0 use=1")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Parse("f", text); err != nil && !strings.HasPrefix(err.Error(), "conntracklist: f:") {
			t.Fatal(err)
		}
	})
}
