package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var updateWalkthrough = flag.Bool("update-walkthrough", false, "write the output into docs/how-services-work.md")

const walkthrough = "docs/how-services-work.md"

var shownCommand = regexp.MustCompile("(?s)<!-- run -->\n\n```\n\\$ portolan ([^\n]*)\n(.*?)```\n")

// Every command of the page prints what the page shows.
func TestWalkthrough(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	text, err := os.ReadFile(walkthrough)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	shown := shownCommand.FindAllStringSubmatch(doc, -1)
	if len(shown) < 14 {
		t.Fatalf("only %d commands", len(shown))
	}
	for _, m := range shown {
		got, err := piped(t, m[1])
		if err != nil {
			t.Errorf("portolan %s: %v", m[1], err)
		}
		if got == m[2] {
			continue
		}
		if !*updateWalkthrough {
			t.Errorf("%s: portolan %s prints something else now; run go test ./cmd/portolan -run Walkthrough -update-walkthrough and read the difference:\n%s", walkthrough, m[1], got)
		}
		doc = strings.Replace(doc, m[0], strings.TrimSuffix(m[0], m[2]+"```\n")+got+"```\n", 1)
	}
	if *updateWalkthrough {
		if err := os.WriteFile(walkthrough, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := 1; i <= 14; i++ {
		if !strings.Contains(doc, fmt.Sprintf("\n### E%d. ", i)) {
			t.Errorf("%s does not explain E%d", walkthrough, i)
		}
	}
}

// piped runs a command line of the page: portolan, and then grep and head.
func piped(t *testing.T, line string) (string, error) {
	t.Helper()
	line, filters, _ := strings.Cut(line, " | ")
	root := newRootCommand()
	var out, stderr bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(strings.Fields(line))
	if err := root.ExecuteContext(t.Context()); err != nil && err.Error() != "" {
		return "", err
	}
	text := out.String()
	for filters != "" {
		var filter string
		filter, filters, _ = strings.Cut(filters, " | ")
		var err error
		if text, err = filtered(text, filter); err != nil {
			return "", err
		}
	}
	if text == "" || stderr.Len() > 0 {
		return "", fmt.Errorf("prints nothing, or complains: %s", stderr.String())
	}
	return text, nil
}

// filtered is what grep 'PATTERN', grep -v 'PATTERN' or head -n N leave of a text.
func filtered(text, filter string) (string, error) {
	words := regexp.MustCompile(`^(grep|grep -v|head -n) '?([^']*)'?$`).FindStringSubmatch(filter)
	if words == nil {
		return "", fmt.Errorf("this page knows no %q", filter)
	}
	lines := strings.SplitAfter(text, "\n")
	if words[1] == "head -n" {
		n, err := strconv.Atoi(words[2])
		return strings.Join(lines[:min(n, len(lines))], ""), err
	}
	pattern, err := regexp.Compile(strings.ReplaceAll(words[2], `\|`, "|"))
	if err != nil {
		return "", err
	}
	var kept []string
	for _, l := range lines {
		if l != "" && pattern.MatchString(strings.TrimSuffix(l, "\n")) == (words[1] == "grep") {
			kept = append(kept, l)
		}
	}
	return strings.Join(kept, ""), nil
}

// The nodes of the page hold what Portolan plans for them.
func TestWalkthroughNodes(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	for _, node := range []string{"node-1", "node-2"} {
		want, err := piped(t, "plan --manifests testdata/two-nodes/cluster.yaml --hostname-override "+node+" --cluster-cidr 10.244.0.0/16 --ip-family ipv4")
		if err != nil {
			t.Fatal(err)
		}
		for _, podnet := range []string{"vxlan", "host-gw"} {
			file := filepath.Join("testdata", "two-nodes", podnet, node, "rules")
			if got, err := os.ReadFile(file); err != nil || string(got) != want {
				t.Errorf("%s is not what plan prints (%v):\n%s", file, err, want)
			}
		}
	}
}
