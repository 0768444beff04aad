// Package conntrackstat reads the counters of connection tracking, from
// `conntrack -S` and /proc/net/stat/nf_conntrack.
package conntrackstat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// Parse sums both forms up over processors. Errors name file and line.
func Parse(file, text string) (netfilter.ConntrackCounts, error) {
	var out netfilter.ConntrackCounts
	var columns []string // of /proc
	for n, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
			continue
		case slices.Contains(f, "insert_failed"):
			columns = f
			continue
		}
		for i, w := range f {
			key, value, base := "", w, 16
			if k, v, ok := strings.Cut(w, "="); ok {
				key, value, base = k, v, 10
			} else if i < len(columns) {
				key = columns[i]
			}
			to := map[string]*uint64{"insert_failed": &out.InsertFailed, "drop": &out.Drop, "early_drop": &out.EarlyDrop}[key]
			if to == nil {
				continue
			}
			v, err := strconv.ParseUint(value, base, 64)
			if err != nil {
				return out, fmt.Errorf("conntrackstat: %s:%d: %s %q is no number", file, n+1, key, value)
			}
			*to += v
		}
	}
	return out, nil
}
