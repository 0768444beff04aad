package figures

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Table writes what the runs of one workload gave as a Markdown table, a mode
// after the other; nothing when there are none.
func Table(out io.Writer, runs []Run, w Workload) error {
	var text strings.Builder
	for _, m := range Modes {
		for _, h := range Headings {
			if line, found := line(runs, w, m, h); found {
				text.WriteString(line)
			}
		}
	}
	if text.Len() == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "| mode | what | unit | kube-proxy | Portolan | better by | goal |\n|---|---|---|---|---|---|---|\n%s", text.String())
	return err
}

// line is one of the table's, if Portolan has something to tell there.
func line(runs []Run, w Workload, m Mode, h Heading) (string, bool) {
	peer, ours := Collect(runs, w, KubeProxy, m.Peer(), h.Row), Collect(runs, w, Portolan, m, h.Row)
	if len(ours) == 0 {
		return "", false
	}
	goal := ""
	if g, found := GoalOf(w, m, h.Row); found {
		goal = g.String()
		if got, reached := g.Reached(peer, ours, Collect(runs, w, Portolan, m, BareOf(h.Row))); !reached && !math.IsNaN(got) {
			goal += ", missed"
		}
	}
	beside := peer.String()
	if len(peer) > 0 && AllRecorded(runs, w, m.Peer(), h.Row) {
		beside += ", recorded"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %v | %s | %s |\n", m, h.Title, h.Unit, beside, ours, Better(h, peer, ours), goal), true
}

// Better says how many times better Portolan's median is than kube-proxy's.
func Better(h Heading, peer, ours Values) string {
	if h.Unit == "writes" || h.Unit == "calls" {
		return ""
	}
	if h.More {
		return Times(ours.Median(), peer.Median())
	}
	return Times(peer.Median(), ours.Median())
}

// AllRecorded tells whether kube-proxy's values of a row are none that the bench
// measured.
func AllRecorded(runs []Run, w Workload, m Mode, row Row) bool {
	for _, r := range runs {
		if r.Workload == w && r.Product == KubeProxy && r.Mode == m && r.Recorded == "" && len(r.Values[row]) > 0 {
			return false
		}
	}
	return true
}

// BareOf is the row of the same figure of connections to Bare; of what is none of
// connections, the row itself.
func BareOf(row Row) Row {
	for _, figure := range []string{ConnectP10, ConnectMedian, ConnectRate, ConnectCPU} {
		if strings.HasPrefix(string(row), figure) {
			return Connect(figure, Bare)
		}
	}
	return row
}

// trim takes the zeros behind the point away.
func trim(number string) string {
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return number
}
