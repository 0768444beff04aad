package manifests

import (
	"fmt"
	"strings"
	"testing"
)

// TestLinesAreOfTheFile: whatever stands before the document.
func TestLinesAreOfTheFile(t *testing.T) {
	const good, bad = "kind: A\nx: 1\n", "kind: B\nx: {y"
	twice := svcYAML("one", "10.96.0.1") + "kind: Service\n"
	line := strings.Count(twice, "\n")
	for name, c := range map[string]struct{ text, want string }{
		"alone":              {bad, "f.yaml: document 1: yaml: line 2: "},
		"second":             {good + "---\n" + bad, "f.yaml: document 2: yaml: line 5: "},
		"behind a separator": {"---\n" + good + "--- # next\n" + bad + "\n---\n" + good, "f.yaml: document 2: yaml: line 6: "},
		"behind comments":    {"# a\n\n---\n# b\n---\n" + good + "---\n---\n" + bad + "\n", "yaml: line 11: "},
		"with CR":            {strings.ReplaceAll(good+"---\n"+bad, "\n", "\r\n"), "f.yaml: document 2: yaml: line 5: "},
		"a key twice": {good + "---\n" + twice,
			fmt.Sprintf(`f.yaml: document 2: Service default/one: line %d: key "kind" is there already; the last one counts`, 3+line)},
	} {
		problems := parse("f.yaml", []byte(c.text)).problems
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, problems, c.want)
		}
	}
}
