package arch

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The chart repeats the rights of deploy/base and the names of our options. That all of
// it agrees is checked in deploy/check and config, which need more than this room has;
// here it is noticed at once.
func TestChartFollows(t *testing.T) {
	base, chart := rights(t, "../../deploy/base/rbac.yaml"), rights(t, "../../deploy/chart/templates/rbac.yaml")
	if base != chart {
		t.Errorf("rights in deploy/base/rbac.yaml:\n%s\nin deploy/chart/templates/rbac.yaml:\n%s", base, chart)
	}
	var schema struct {
		Properties struct {
			Options struct{ Properties map[string]any }
		}
	}
	text := readFile(t, "../../deploy/chart/values.schema.json")
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		t.Fatal(err)
	}
	var options []string
	for _, m := range regexp.MustCompile(`json:"(\w+),`).FindAllStringSubmatch(readFile(t, "../../config/options.go"), -1) {
		options = append(options, m[1])
	}
	slices.Sort(options)
	if got := slices.Sorted(maps.Keys(schema.Properties.Options.Properties)); !slices.Equal(got, options) {
		t.Errorf("ProxyOptions has %v, deploy/chart/values.schema.json %v: go test ./config -run Schema -update", options, got)
	}
}

// rights are the rules of every role of a file, as they are written.
func rights(t *testing.T, file string) string {
	t.Helper()
	var out strings.Builder
	in := false
	for line := range strings.Lines(readFile(t, file)) {
		switch {
		case line == "rules:\n":
			in = true
		case in && !strings.HasPrefix(line, "- ") && !strings.HasPrefix(line, "  "):
			in = false
		}
		if in {
			out.WriteString(line)
		}
	}
	if out.Len() == 0 {
		t.Fatalf("%s: no rules", file)
	}
	return out.String()
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
