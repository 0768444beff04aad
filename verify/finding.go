package verify

import (
	"cmp"
	"slices"
	"strings"

	"portolan/trace"
)

// Severity is how bad a Finding is.
type Severity uint8

// The severities. Errors break traffic now; warnings can, or will; what is only
// good to know is Info.
const (
	Info Severity = iota
	Warning
	Error
)

func (s Severity) String() string { return [...]string{"info", "warning", "error"}[s] }

// Finding is one thing that is not as it should be.
type Finding struct {
	Code     Code
	Severity Severity
	// Object is what the finding is about: a Service port ("default/web:http"), a
	// sysctl, a rule ("filter FORWARD rule 3"), an address.
	Object   string
	Actual   string // what is
	Expected string // what should be
	Owner    Owner  // of what decides
	Fix      string
	Link     string // to a known problem of this pattern, "" without
	// Affected are the Service ports that suffer, sorted; the Object is not repeated.
	Affected []string
	Trace    *trace.Answer // an example, nil without
}

// Report is the outcome of a verification.
type Report struct {
	Findings []Finding
	Rows     []Row
	// Flows is the number of packets followed; Uncertain is how many of them
	// have an outcome that could not be told.
	Flows, Uncertain int
	Assumptions      []string
}

// Worst is the highest severity of the findings; ok is false without any.
func (r Report) Worst() (worst Severity, ok bool) {
	for _, f := range r.Findings {
		worst, ok = max(worst, f.Severity), true
	}
	return worst, ok
}

// once drops findings that say what another one says better: of one code and
// object the worst stays, and of equals the one with an example.
func once(list []Finding) []Finding {
	var out []Finding
	at := map[groupKey]int{}
	for _, f := range list {
		key := groupKey{f.Code, f.Object}
		i, there := at[key]
		switch {
		case !there:
			at[key] = len(out)
			out = append(out, f)
		case f.Severity > out[i].Severity || f.Severity == out[i].Severity && out[i].Trace == nil && f.Trace != nil:
			out[i] = f
		}
	}
	return out
}

// sortFindings puts the worst first, then by code and object.
func sortFindings(list []Finding) {
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), strings.Compare(string(a.Code), string(b.Code)), strings.Compare(a.Object, b.Object))
	})
}

// Row is what becomes of every kind of client at one frontend.
type Row struct {
	Service  string // "default/web:http"
	Kind     string // "ClusterIP", "NodePort", ...
	Frontend string // "10.96.0.10:80/tcp"
	Cells    []Cell
}

// Cell is what becomes of one kind of client.
type Cell struct {
	Client  string // "pod", "node", "outside", ...
	Verdict string // "2 endpoints", "2 endpoints, masqueraded", "reject", "drop", ...
	OK      bool   // it is what the Service asks for
	Sure    bool
}
