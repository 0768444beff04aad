package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDocsCommands: the commands that the documents show have the flags that they show.
func TestDocsCommands(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/adr/*.md", "../../examples/*.md"} {
		list, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, list...)
	}
	shown := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range shownCommands(string(text)) {
			shown++
			if err := parses(words); err != nil {
				t.Errorf("%s: portolan %s: %v", file, strings.Join(words, " "), err)
			}
		}
	}
	if shown < 20 {
		t.Errorf("%d commands in %d files", shown, len(files))
	}
	if parses([]string{"plan", "--no-such-flag"}) == nil || parses([]string{"trace", "surplus"}) == nil {
		t.Error("everything parses: nothing is checked")
	}
}

// shownCommands are the arguments of portolan in the code blocks of a document.
func shownCommands(text string) (out [][]string) {
	inside := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			inside = !inside
			continue
		}
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == "$" { // a prompt
			words = words[1:]
		}
		if !inside || len(words) < 2 || words[0] != "portolan" && words[0] != "bin/portolan" {
			continue
		}
		if end := slices.IndexFunc(words, func(w string) bool { return w == "#" || w == "|" || w == ">" || w == "&&" }); end >= 0 {
			words = words[:end]
		}
		out = append(out, words[1:])
	}
	return out
}

// parses tells what is wrong with a command line, without running it.
func parses(words []string) error {
	cmd, rest, err := newRootCommand().Find(words)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
