package nftjson_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/nftjson"
	"portolan/netfilter/nfttext"
)

const data = "../../testdata/nft/"

func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(data, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The text and the JSON of one ruleset, and the script it was loaded from,
// mean the same.
func TestSameMeaning(t *testing.T) {
	for _, name := range []string{"everything", "kube-proxy", "affinity-learn", "affinity-by-port", "slots", "flannel", "docker", "firewalld", "calico"} {
		text, err := nfttext.Parse(name, read(t, name+".nft"))
		if err != nil {
			t.Fatal(err)
		}
		json, err := nftjson.Parse(name, read(t, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if len(text.Tables) != len(json.Tables) || len(text.Tables) == 0 {
			t.Fatalf("%s: %d and %d tables", name, len(text.Tables), len(json.Tables))
		}
		for i := range text.Tables {
			same(t, name, text.Tables[i], json.Tables[i])
		}
	}
}

func TestScriptMeansWhatItLoads(t *testing.T) {
	script, err := nfttext.Parse("script", read(t, "kube-proxy.script"))
	if err != nil {
		t.Fatal(err)
	}
	listing, err := nfttext.Parse("listing", read(t, "kube-proxy.nft"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range listing.Tables {
		same(t, "script", sorted(script.Tables[i]), sorted(listing.Tables[i]))
	}
}

// same compares two tables line by line.
func same(t *testing.T, name string, a, b *netfilter.Table) {
	t.Helper()
	x, y := strings.Split(meaning(a), "\n"), strings.Split(meaning(b), "\n")
	for i := range max(len(x), len(y)) {
		if i >= len(x) || i >= len(y) || x[i] != y[i] {
			t.Errorf("%s, table %s: line %d\n%s\nand\n%s", name, a.Name, i, line(x, i), line(y, i))
			return
		}
	}
}

func line(ls []string, i int) string {
	if i < len(ls) {
		return ls[i]
	}
	return "(nothing)"
}

// Nothing of the kernel's own rulesets is unknown but what is said here.
func TestUnknowns(t *testing.T) {
	for name, want := range map[string][]string{
		"kube-proxy": nil, "affinity-learn": nil, "affinity-by-port": nil, "slots": nil, "flannel": nil, "docker": nil, "firewalld": nil, "calico": nil,
		"everything": {"dnat ip prefix to ip daddr map { 10.0.0.0/24 : 10.1.0.0/24 }"},
	} {
		d, err := nftjson.Parse(name, read(t, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, table := range d.Tables {
			for _, c := range table.Chains() {
				for i := range c.Rules {
					for _, u := range c.Rules[i].Unknowns() {
						got = append(got, u.Text)
					}
				}
			}
			for _, s := range table.Sets {
				if s.Doubt != "" {
					got = append(got, s.Doubt)
				}
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Statements become the text that nft would list.
func TestText(t *testing.T) {
	rules := map[string]string{
		`[{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [22, {"range": [80, 90]}]}}}, {"accept": null}]`: "tcp dport { 22, 80-90 } accept",
		`[{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}, {"counter": null}]`:                                  "ct state established,related counter",
		`[{"match": {"op": "==", "left": {"ct": {"key": "state"}}, "right": "new"}}]`:                                                                          "ct state == new",
		`[{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"&": [{"meta": {"key": "mark"}}, 255]}, 16384]}}}]`:                                   "meta mark set meta mark & 255 | 16384",
		`[{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"&": [{"|": [{"meta": {"key": "mark"}}, 1]}, 2]}}}]`:                                         "meta mark set (meta mark | 1) & 2",
		`[{"dnat": {"addr": "fd00::1", "port": 80, "family": "ip6"}}]`:                                                                                         "dnat ip6 to [fd00::1]:80",
		`[{"reject": {"type": "icmpx", "expr": "admin-prohibited"}}]`:                                                                                          "reject with icmpx admin-prohibited",
		`[{"log": {"prefix": "a b", "level": "info", "flags": "all"}}, {"drop": null}]`:                                                                        `log prefix "a b" level info flags all drop`,
		`[{"xt": {"type": "match", "name": "recent"}}]`:                                                                                                        "xt match recent",
		`["update @x { ip saddr : 1.2.3.4 }"]`:                                                                                                                 "update @x { ip saddr : 1.2.3.4 }",
		`[{"queue": {"num": {"range": [3, 5]}, "flags": ["bypass", "fanout"]}}]`:                                                                               "queue flags bypass,fanout to 3-5",
		`[{"future": {"a": 1}}]`: `json "{'future':{'a':1}}"`,
		`[{"map": {"op": "update", "elem": {"elem": {"val": {"payload": {"protocol": "ip", "field": "saddr"}}, "timeout": 5}}, "data": {"concat": [{"payload": {"protocol": "ip", "field": "daddr"}}, 80]}, "map": "@affinity"}}]`: "update @affinity { ip saddr timeout 5s : ip daddr . 80 }",
	}
	for json, want := range rules {
		text, err := nftjson.Text("t", `{"nftables": [{"rule": {"family": "ip", "table": "t", "chain": "c", "expr": `+json+`}}]}`)
		if err != nil {
			t.Errorf("%s: %v", json, err)
		}
		got := strings.TrimSpace(strings.Split(text, "\n")[2])
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", json, got, want)
		}
	}
}

// What is no ruleset is an error.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                                    "nftjson: t: unexpected end of JSON input",
		`{"other": 1}`:                         `nftjson: t: there is no list "nftables"`,
		`{"nftables": [{"table": {}}]}`:        "nfttext: t:1: \"{\" where a name should be",
		`{"nftables": [{"flush": {}}]}`:        "nftjson: t: a flush: objects and commands of this kind are not read",
		`{"nftables": [{"rule": {"expr":1}}]}`: "nftjson: t: a rule: json: cannot unmarshal number into Go struct field object.Expr of type []interface {}",
	} {
		if _, err := nftjson.Parse("t", text); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// FuzzParse: no text makes the reader fall, and what it reads it can read
// again from its own text.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"everything", "kube-proxy", "affinity-learn", "affinity-by-port", "slots", "flannel", "docker", "firewalld", "calico"} {
		f.Add(read(f, name+".json"))
	}
	f.Add(`{"nftables": [{"add": {"table": {"family": "ip", "name": "x"}}}, {"rule": {"family": "ip", "table": "x", "chain": "y", "expr": [{"vmap": {"key": {"numgen": {"mode": "inc", "mod": 2}}, "data": {"set": [[0, {"jump": {"target": "z"}}]]}}}]}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		words, err := nftjson.Text("fuzz", text)
		if err != nil {
			return
		}
		_, _ = nfttext.Parse("fuzz", words)
	})
}
