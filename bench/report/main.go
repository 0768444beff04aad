// Command report makes docs/performance.md and its plots of what the bench
// measured. It is a module of its own, because a library that draws is no part of
// the product.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"portolan/bench/figures"
)

func main() {
	results := flag.String("results", "../results", "folder with the runs, NAME.jsonl")
	docs := flag.String("docs", "../../docs", "folder for performance.md and the folder performance with the plots")
	flag.Parse()
	if err := run(*results, *docs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(results, docs string) error {
	files, err := report(results)
	if err != nil {
		return err
	}
	for name, text := range files {
		file := filepath.Join(docs, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// report makes the files of the report, by their names in the folder of documents.
func report(results string) (map[string][]byte, error) {
	runs, err := figures.ReadFolder(results)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, p := range plots {
		drawn, err := p.draw(runs)
		if err != nil {
			return nil, err
		}
		files["performance/"+p.file] = drawn
	}
	var page bytes.Buffer
	if err := write(&page, runs); err != nil {
		return nil, err
	}
	files["performance.md"] = page.Bytes()
	return files, nil
}
