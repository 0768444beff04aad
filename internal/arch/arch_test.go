// Package arch holds tests of the house: who may import whom, in this file; how long files
// and functions are, which rooms are pure, that nobody swallows panics, and that the documents
// name what is there.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A rule lists what a room may import: rooms of this module by path, a prefix
// ending in "/..." for a room with all below it, and third-party libraries by
// the start of their path. The standard library is always free.
type rule struct {
	room   string
	may    []string
	reason string
}

var rules = []rule{
	{"service", nil, "the model is pure: whoever reads it needs to know nothing else"},
	{"dataplane", nil, "wanted against actual knows no Services and no rules"},
	{"netfilter", nil, "the meaning of a ruleset depends on no tool and no library"},
	{"trace/...", []string{"netfilter", "trace/..."}, "the reading half shares no rule code with the writing half"},
	{"netfilter/...", []string{"netfilter/...", "internal/readfile", "github.com/vishvananda/", "golang.org/x/sys", "sigs.k8s.io/yaml"}, "parsers and the live reader turn text into meaning"},
	{"verify", []string{"trace", "netfilter", "dataplane", "service"}, "holds the reading half against the model; beside tests and cmd the only room that sees both"},
	{"config", []string{"internal/readfile", "k8s.io/", "sigs.k8s.io/", "github.com/spf13/pflag", "go.yaml.in/yaml/", "github.com/fsnotify/"}, "reads kube-proxy's own configuration types, with the lines of the file, and watches it"},
	{"source/podnodes", []string{"podnet", "service", "source/...", "k8s.io/"}, "Nodes as the pod network sees them"},
	{"source/...", []string{"service", "source/kube", "k8s.io/", "sigs.k8s.io/", "github.com/fsnotify/"}, "the only rooms, with config, that know Kubernetes types"},
	{"healthcheck", []string{"service"}, "tells about the proxy, does not steer it"},
	{"conntrack", []string{"service", "kernel/conntrack"}, "flows against Services; how the kernel is asked for them is below"},
	{"localhost", []string{"service"}, "carries connections to where service says, and knows no rules"},
	{"slowstart", []string{"service"}, "stands between sources and the agent, and knows neither"},
	{"metrics", []string{"agent", "dataplane", "service", "github.com/prometheus/", "k8s.io/client-go/tools/metrics"}, "counts what the agent says; only the agent's backends pass through it"},
	{"agent", []string{"dataplane", "service"}, "the loop knows no backend and no source"},
	{"kernel/conntrack/conntracktest", []string{"kernel/conntrack", "internal/netnstest", "golang.org/x/sys", "github.com/vishvananda/"}, "fills a table for tests"},
	{"kernel/...", []string{"kernel/...", "golang.org/x/sys", "github.com/vishvananda/", "github.com/mdlayher/", "github.com/google/nftables"}, "talks to the kernel and knows no Services"},
	{"backend/backendtest", []string{"dataplane", "service"}, "Services and steps for the tests of every backend"},
	{"backend/...", []string{"dataplane", "service", "kernel/...", "golang.org/x/sys", "github.com/vishvananda/"}, "writes down what service decided"},
	{"podnet", []string{"dataplane"}, "what the pod network needs is decided without a kernel"},
	{"podnet/linux", []string{"podnet", "dataplane", "kernel/...", "github.com/vishvananda/", "golang.org/x/sys"}, "observes and writes what podnet decides"},
	{"podnet/agent", []string{"podnet", "podnet/linux", "dataplane"}, "the loop of the pod network knows no source"},
	{"lab", []string{"github.com/vishvananda/", "golang.org/x/sys"}, "little networks, for tests and for people"},
	{"internal/netnstest", []string{"golang.org/x/sys"}, "a network namespace for the tests of every room"},
	{"internal/readfile", nil, "reads what a user names, for configuration and dumps"},
	{"internal/arch", nil, "looks at the others from outside"},
	{"cmd/...", []string{"..."}, "wires everything"},
	{"e2e/...", []string{"..."}, "tests everything"},
	{"bench/figures", nil, "what was measured, for whoever reads the data"},
	{"bench/...", []string{"..."}, "measures everything"},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

// Every room imports what its rule allows, and no more.
func TestImports(t *testing.T) {
	for _, p := range list(t) {
		room := strings.TrimPrefix(p.ImportPath, "portolan/")
		i := slices.IndexFunc(rules, func(r rule) bool { return matches(r.room, room) })
		if i < 0 {
			t.Errorf("%s: no rule says what this room may import", room)
			continue
		}
		for _, imported := range p.Imports {
			if standard(imported) || allowed(rules[i].may, imported) {
				continue
			}
			t.Errorf("%s imports %s, which it may not: %s", room, imported, rules[i].reason)
		}
	}
}

// The rules must be able to refuse.
func TestRulesRefuse(t *testing.T) {
	for room, imported := range map[string]string{
		"trace": "portolan/service", "service": "k8s.io/api/core/v1", "dataplane": "portolan/service",
		"backend/iptables": "portolan/netfilter", "netfilter": "golang.org/x/sys/unix", "agent": "portolan/backend/iptables",
	} {
		i := slices.IndexFunc(rules, func(r rule) bool { return matches(r.room, room) })
		if allowed(rules[i].may, imported) {
			t.Errorf("%s may import %s", room, imported)
		}
	}
}

// matches tells whether a rule is for a room; a room named exactly comes first
// in the list.
func matches(pattern, room string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "..."); ok {
		return prefix == "" || strings.HasPrefix(room+"/", prefix)
	}
	return pattern == room
}

func allowed(may []string, imported string) bool {
	ours, isOurs := strings.CutPrefix(imported, "portolan/")
	return slices.ContainsFunc(may, func(m string) bool {
		if m == "..." {
			return true
		}
		if isOurs {
			return matches(m, ours)
		}
		return strings.HasPrefix(imported, strings.TrimSuffix(m, "...")) && strings.Contains(m, ".")
	})
}

func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && first != "portolan"
}

// list asks the go command for the packages of this module.
func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", "portolan/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 5 {
		t.Fatalf("go list names only %d packages", len(pkgs))
	}
	return pkgs
}
