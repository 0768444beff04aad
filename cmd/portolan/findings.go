package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"portolan/trace"
	"portolan/trace/explain"
	"portolan/verify"
)

// printReport prints findings for people, or as JSON.
func printReport(w io.Writer, t *trace.Tracer, r verify.Report, f verifyFlags) error {
	if f.output == "json" {
		return writeFindings(w, t, r, f.all)
	}
	var b strings.Builder
	if f.all {
		b.WriteString(rowsText(r.Rows))
	}
	for _, x := range r.Findings {
		b.WriteString(findingText(x))
	}
	b.WriteString(summary(r))
	_, err := io.WriteString(w, b.String())
	return err
}

// findingText is a finding for people.
func findingText(f verify.Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s\n", f.Severity, f.Code, f.Object)
	for _, l := range []struct{ name, text string }{
		{"is", f.Actual}, {"should", f.Expected}, {"owner", ownerText(f.Owner)}, {"fix", f.Fix}, {"known as", f.Link}, {"affects", affectedText(f.Affected)},
	} {
		if l.text != "" {
			fmt.Fprintf(&b, "  %-9s %s\n", l.name+":", l.text)
		}
	}
	if f.Trace != nil {
		fmt.Fprintf(&b, "  %-9s %s\n", "see:", traceCommand(*f.Trace))
	}
	return b.String() + "\n"
}

func ownerText(o verify.Owner) string {
	if o.Name == "" {
		return ""
	}
	return o.Name + " (" + o.Why + ")"
}

func affectedText(list []string) string {
	const most = 5
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// traceCommand is the command line that follows the packet of an example.
func traceCommand(a trace.Answer) string {
	j := explain.ToJSON(nil, trace.Answer{Flow: a.Flow, Entry: a.Entry, In: a.In})
	out := "portolan trace --src " + j.Flow.Src + " --dst " + j.Flow.Dst
	if j.Flow.Proto != "tcp" {
		out += " --proto " + j.Flow.Proto
	}
	switch {
	case a.Flow.Local:
		out += " --local"
	case a.Flow.In != "":
		out += " --in " + a.Flow.In
	}
	return out
}

// rowsText is the table of all frontends.
func rowsText(rows []verify.Row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%s %s %s\n", r.Service, r.Kind, r.Frontend)
		for _, c := range r.Cells {
			mark := " "
			if !c.OK {
				mark = "!"
			}
			if !c.Sure {
				mark += "?"
			}
			fmt.Fprintf(&b, "  %-2s%-17s %s\n", mark, c.Client, c.Verdict)
		}
	}
	if len(rows) > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

// summary is the last line, and what was assumed.
func summary(r verify.Report) string {
	var counts [3]int
	for _, f := range r.Findings {
		counts[f.Severity]++
	}
	text := fmt.Sprintf("%d packets to %d frontends followed: %d errors, %d warnings, %d remarks\n", r.Flows, len(r.Rows), counts[verify.Error], counts[verify.Warning], counts[verify.Info])
	for _, a := range r.Assumptions {
		text += "assumed: " + a + "\n"
	}
	return text
}

type jsonFinding struct {
	Code     verify.Code     `json:"code"`
	Severity string          `json:"severity"` // error, warning or info
	Object   string          `json:"object"`
	Actual   string          `json:"actual"`
	Expected string          `json:"expected"`
	Owner    string          `json:"owner"`
	OwnerWhy string          `json:"ownerWhy,omitempty"`
	Fix      string          `json:"fix"`
	Link     string          `json:"link,omitempty"`
	Affected []string        `json:"affected,omitempty"` // Service ports beside the object
	Trace    *explain.Answer `json:"trace,omitempty"`
}

type jsonRow struct {
	Service  string     `json:"service"`
	Kind     string     `json:"kind"`
	Frontend string     `json:"frontend"`
	Clients  []jsonCell `json:"clients"`
}

type jsonCell struct {
	Client  string `json:"client"`
	Verdict string `json:"verdict"`
	OK      bool   `json:"ok"`
	Certain bool   `json:"certain"`
}

// writeFindings writes the JSON form, with the frontends if all is asked for.
func writeFindings(w io.Writer, t *trace.Tracer, r verify.Report, all bool) error {
	out := struct {
		APIVersion  string        `json:"apiVersion"`
		Findings    []jsonFinding `json:"findings"`
		Frontends   []jsonRow     `json:"frontends,omitempty"`
		Packets     int           `json:"packets"`
		Uncertain   int           `json:"uncertain"`
		Assumptions []string      `json:"assumptions"`
	}{explain.APIVersion, []jsonFinding{}, nil, r.Flows, r.Uncertain, append([]string{}, r.Assumptions...)}
	for _, f := range r.Findings {
		x := jsonFinding{f.Code, f.Severity.String(), f.Object, f.Actual, f.Expected, f.Owner.Name, f.Owner.Why, f.Fix, f.Link, f.Affected, nil}
		if f.Trace != nil {
			a := explain.ToJSON(t, *f.Trace)
			x.Trace = &a
		}
		out.Findings = append(out.Findings, x)
	}
	if all {
		for _, r := range r.Rows {
			row := jsonRow{r.Service, r.Kind, r.Frontend, []jsonCell{}}
			for _, c := range r.Cells {
				row.Clients = append(row.Clients, jsonCell{c.Client, c.Verdict, c.OK, c.Sure})
			}
			out.Frontends = append(out.Frontends, row)
		}
	}
	return printJSON(w, out)
}

// printJSON writes what a command prints with -o json. Characters that mean something
// in HTML stay as they are.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
