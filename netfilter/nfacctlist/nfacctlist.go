// Package nfacctlist reads the names that `nfacct list` prints.
package nfacctlist

import (
	"fmt"
	"regexp"
	"strings"
)

var objectLine = regexp.MustCompile(`^\{ pkts = \d+, bytes = \d+.* \} = (\S+);$`)

// Parse reads one object a line. Errors name file and line.
func Parse(file, text string) ([]string, error) {
	var out []string
	for n, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		m := objectLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("nfacctlist: %s:%d: %q is no nfacct object", file, n+1, line)
		}
		out = append(out, m[1])
	}
	return out, nil
}
