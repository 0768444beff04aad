// Package sysctl reads what `sysctl -a` prints.
package sysctl

import (
	"fmt"
	"strings"
)

// Parse reads "name = value" lines into a map by dotted name. Complaints of
// sysctl about keys that cannot be read are skipped. Errors name file and line.
func Parse(file, text string) (map[string]string, error) {
	out := map[string]string{}
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' || strings.HasPrefix(line, "sysctl: ") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("sysctl: %s:%d: expected \"name = value\", not %q", file, n+1, line)
		}
		out[Dotted(name)] = strings.TrimSpace(value)
	}
	return out, nil
}

// Dotted gives the dotted form of a name that may be written as a path:
// net/ipv4/conf/eth0.100/rp_filter is net.ipv4.conf.eth0/100.rp_filter.
func Dotted(name string) string {
	dot, slash := strings.IndexByte(name, '.'), strings.IndexByte(name, '/')
	if slash >= 0 && (dot < 0 || slash < dot) {
		return strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, name)
	}
	return name
}
