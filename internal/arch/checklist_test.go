package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const checklistItems = 57

var (
	checklistRow = regexp.MustCompile(`(?m)^\| D(\d+) \| [^|]+ \| ([^|]+) \|$`)
	roomName     = regexp.MustCompile("^`([a-z0-9/]+)` ")
	testName     = regexp.MustCompile(`\b(?:Test|Fuzz)\w+`)
	caseName     = regexp.MustCompile(`"([^"]+)"`)
)

// Every item of docs/checklist.md is there once, and so is what it names.
func TestChecklistNamesWhatIsThere(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "checklist.md"))
	if err != nil {
		t.Fatal(err)
	}
	differences, err := os.ReadFile(filepath.Join(root, "docs", "differences.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]int{}
	for _, row := range checklistRow.FindAllStringSubmatch(string(text), -1) {
		item, _ := strconv.Atoi(row[1])
		seen[item]++
		if err := checkItem(root, string(differences), row[2]); err != nil {
			t.Errorf("docs/checklist.md: D%d: %v", item, err)
		}
	}
	for item := 1; item <= checklistItems; item++ {
		if seen[item] != 1 {
			t.Errorf("docs/checklist.md: D%d is there %d times", item, seen[item])
		}
	}
}

// checkItem looks for what one item names. Parts stand apart by semicolons; a part
// without a room is about the one before it.
func checkItem(root, differences, where string) error {
	room := ""
	for _, part := range strings.Split(where, "; ") {
		part = strings.TrimSpace(part)
		if topic, is := strings.CutPrefix(part, "differs: "); is {
			if !strings.Contains(differences, "\n| "+topic+" |") {
				return fmt.Errorf("docs/differences.md has no row %q", topic)
			}
			continue
		}
		if reason, is := strings.CutPrefix(part, "later: "); is && reason != "" {
			continue
		}
		if m := roomName.FindStringSubmatch(part); m != nil {
			room = m[1]
		}
		tests := testName.FindAllString(caseName.ReplaceAllString(part, ""), -1)
		if room == "" || len(tests) == 0 {
			return fmt.Errorf("%q names no test", part)
		}
		source, err := testSource(filepath.Join(root, room))
		if err != nil {
			return err
		}
		for _, test := range tests {
			if !strings.Contains(source, "func "+test+"(") {
				return fmt.Errorf("%s has no test %s", room, test)
			}
		}
		for _, name := range caseName.FindAllString(part, -1) {
			if !strings.Contains(source, name) {
				return fmt.Errorf("%s has no case %s", room, name)
			}
		}
	}
	return nil
}

// testSource is the text of all tests of a room.
func testSource(dir string) (string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		b.Write(text)
	}
	return b.String(), nil
}

// What is not there is seen.
func TestChecklistRefuses(t *testing.T) {
	const differences = "\n| some topic | a | b | c |\n"
	for where, right := range map[string]bool{
		"`internal/arch` TestChecklistRefuses":                                 true,
		"`internal/arch` TestChecklistRefuses \"a case\"; differs: some topic": true,
		"later: something":                   true,
		"`internal/arch` TestThatIsNotThere": false,
		"`internal/arch` TestChecklistRefuses \"a" + " different case\"": false,
		"differs: another topic":  false,
		"TestChecklistRefuses":    false,
		"`internal/arch` nothing": false,
		"later: ":                 false,
	} {
		if err := checkItem(filepath.Join("..", ".."), differences, where); (err == nil) != right {
			t.Errorf("%s: %v", where, err)
		}
	}
	_ = []string{"a case"}
}
