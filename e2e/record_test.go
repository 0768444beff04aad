package e2e

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portolan/lab"
)

// recorder keeps what was restored on every node.
type recorder struct{ dir string }

// recordRestores puts programs in front of iptables-restore that keep a copy of what
// they restored, once it is in force.
func (p *portolan) recordRestores(t *testing.T) recorder {
	t.Helper()
	p.shims = t.TempDir()
	r := recorder{dir: t.TempDir()}
	for _, v := range []lab.Variant{lab.Legacy, lab.NFT} {
		for _, family := range []string{"iptables", "ip6tables"} {
			names := []string{family + "-" + string(v) + "-restore"}
			if v == p.variant {
				names = append(names, family+"-restore")
			}
			script := fmt.Sprintf(recordingScript, r.dir, family, v, family)
			for _, name := range names {
				if err := os.WriteFile(filepath.Join(p.shims, name), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return r
}

// The lock file of a host ends with its name; see lab.Host.Command.
const recordingScript = `#!/bin/sh
part=$(mktemp %s/part.XXXXXX) || exit 1
cat >"$part"
xtables-%[3]s-multi %[4]s-restore "$@" <"$part" || exit
mv "$part" "%[1]s/${XTABLES_LOCKFILE##*.}.%[2]s.${part##*.}"
`

// families are the programs' names by IP family, IPv4 first.
var families = []string{"iptables", "ip6tables"}

// restores is what was restored on a node, by family.
type restores map[string][]string

// take gives what was restored on a node since the last take.
func (r recorder) take(node string) (restores, error) {
	out := restores{}
	for _, family := range families {
		files, err := filepath.Glob(filepath.Join(r.dir, node+"."+family+".*"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if err := os.Remove(file); err != nil {
				return nil, err
			}
			out[family] = append(out[family], string(text))
		}
	}
	return out, nil
}

// add appends what came later.
func (r restores) add(more restores) {
	for family, texts := range more {
		r[family] = append(r[family], texts...)
	}
}

// chains are those that were written in one family: "TABLE/CHAIN", with a minus
// before it when the chain was removed.
func (r restores) chains(family string) map[string]bool {
	written := map[string]bool{}
	for _, text := range r[family] {
		maps.Copy(written, writtenChains(text))
	}
	return written
}

// contain tells whether some restore of each family has a text.
func (r restores) contain(text string) bool {
	for _, family := range families {
		if !slices.ContainsFunc(r[family], func(s string) bool { return strings.Contains(s, text) }) {
			return false
		}
	}
	return true
}

// writtenChains lists the chains of one restore.
func writtenChains(text string) map[string]bool {
	written := map[string]bool{}
	table := ""
	for line := range strings.Lines(text) {
		word := strings.Fields(line)
		switch {
		case len(word) == 0:
		case word[0][0] == '*':
			table = word[0][1:]
		case word[0][0] == ':':
			written[table+"/"+word[0][1:]] = true
		case word[0] == "-X":
			delete(written, table+"/"+word[1])
			written["-"+table+"/"+word[1]] = true
		case len(word) > 1 && word[0][0] == '-' && !written["-"+table+"/"+word[1]]:
			written[table+"/"+word[1]] = true
		}
	}
	return written
}

// chainHash is the name part of the chains of a Service port, or with an address of
// an endpoint: base32 of the sha256 of port name, protocol and address.
func chainHash(service, port, protocol, address string) string {
	sum := sha256.Sum256([]byte("default/" + service + ":" + port + protocol + address))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// sharedChains are short names of chains that all Services share.
var sharedChains = map[string]string{
	"filter-services": "filter/KUBE-SERVICES",
	"filter-external": "filter/KUBE-EXTERNAL-SERVICES",
	"filter-firewall": "filter/KUBE-PROXY-FIREWALL",
	"services":        "nat/KUBE-SERVICES",
	"nodeports":       "nat/KUBE-NODEPORTS",
}

// expandChains turns what a change should write into chains of one family. A word is
// a short name, "KIND:SERVICE" for its chains SVC, SVL, EXT or FW of both ports, or
// "SEP:SERVICE:POD"; with a minus the chain goes.
func expandChains(words string, family int) (map[string]bool, error) {
	out := map[string]bool{}
	for _, word := range strings.Fields(words) {
		name, minus := word, ""
		if after, is := strings.CutPrefix(word, "-"); is {
			name, minus = after, "-"
		}
		if chain := sharedChains[name]; chain != "" {
			out[minus+chain] = true
			continue
		}
		part := strings.Split(name, ":")
		if len(part) < 2 || part[0] == "SEP" && len(part) != 3 {
			return nil, fmt.Errorf("%q is no chain", word)
		}
		address := ""
		if part[0] == "SEP" {
			pod := cellPods[slices.IndexFunc(cellPods, func(p lab.PodSpec) bool { return p.Name == part[2] })]
			address = netip.AddrPortFrom(pod.Addrs[family], podPort).String()
		}
		for i, protocol := range []string{"tcp", "udp"} {
			out[minus+"nat/KUBE-"+part[0]+"-"+chainHash(part[1], fmt.Sprintf("p%d", i), protocol, address)] = true
		}
	}
	return out, nil
}

// TestWrittenChains: what a restore writes and removes is told apart.
func TestWrittenChains(t *testing.T) {
	got := writtenChains("*filter\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j X\nCOMMIT\n*nat\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-B - [0:0]\n-I OUTPUT -j Y\n-X KUBE-SEP-B\nCOMMIT\n")
	want := map[string]bool{"filter/KUBE-SERVICES": true, "nat/KUBE-SVC-A": true, "-nat/KUBE-SEP-B": true, "nat/OUTPUT": true}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
