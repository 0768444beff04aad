package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portolan/lab"
)

// The dimensions of the table of cells; see cells/README.md.
var (
	cellKinds    = []string{"clusterip", "nodeport", "nodeport-bridge", "nodeport-localhost", "lb", "lb-inside", "lb-outside", "lb-proxy", "externalip"}
	cellPolicies = []string{"Cluster", "Local"}
	cellClients  = []string{"pod", "endpoint", "node", "outside"}
	cellProtos   = []string{"tcp", "udp"}
	cellFamilies = []string{"ipv4", "ipv6"}
	cellModes    = []string{"iptables", "nftables", "ipvs"}
	paperModes   = []string{"iptables", "nftables", "ipvs"} // whose plan can be traced
)

// cellStates are the states of endpoints in the order of README.md.
var cellStates = []string{"local", "remote", "both", "none", "terminating", "leaving", "notready", "hinted"}

// cell is one combination.
type cell struct {
	kind, policy, endpoints, client, proto, family string
}

func (c cell) String() string {
	return strings.Join([]string{c.kind, c.policy, c.endpoints, c.client, c.proto, c.family}, " ")
}

// expectation is what a cell of the table says.
type expectation struct {
	text       string // as written
	place      string // file:line
	verdict    lab.Verdict
	pods       []string
	source     string // "kept", "masq" or "hairpin"
	impossible string // a word of reasons.txt
}

// cellTable is what one proxy mode has to do.
type cellTable map[cell]expectation

// allCells lists every combination.
func allCells() []cell {
	var list []cell
	for _, kind := range cellKinds {
		for _, policy := range cellPolicies {
			for _, endpoints := range cellStates {
				for _, client := range cellClients {
					for _, proto := range cellProtos {
						for _, family := range cellFamilies {
							list = append(list, cell{kind, policy, endpoints, client, proto, family})
						}
					}
				}
			}
		}
	}
	return list
}

// readCells reads the table of one mode; what is missing or listed twice is an error.
func readCells(mode string) (cellTable, error) {
	files, err := filepath.Glob("cells/*.txt")
	if err != nil {
		return nil, err
	}
	table := cellTable{}
	for _, file := range files {
		if filepath.Base(file) == "reasons.txt" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := table.parse(file, string(data), mode); err != nil {
			return nil, err
		}
	}
	for _, c := range allCells() {
		if _, listed := table[c]; !listed {
			return nil, fmt.Errorf("cells: mode %s: %v is not listed", mode, c)
		}
	}
	return table, nil
}

// parse adds the lines of one file that hold for a mode.
func (t cellTable) parse(file, text, mode string) error {
	kind := ""
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		word := strings.Fields(line)
		var err error
		switch {
		case len(word) == 0:
		case word[0] == "kind" && len(word) == 2:
			kind = word[1]
			err = oneOf(kind, cellKinds)
		case kind == "":
			err = fmt.Errorf("a line before any kind")
		default:
			err = t.line(fmt.Sprintf("%s:%d", file, i+1), kind, mode, word)
		}
		if err != nil {
			return fmt.Errorf("cells: %s:%d: %w", file, i+1, err)
		}
	}
	return nil
}

// line adds the cells of one line.
func (t cellTable) line(place, kind, mode string, word []string) error {
	if len(word) < 6 || len(word) > 6 && word[6] != "only" {
		return fmt.Errorf("want POLICIES ENDPOINTS POD ENDPOINT NODE OUTSIDE [only WORD...]")
	}
	var only []string
	if len(word) > 6 {
		only = word[7:]
	}
	protos, err1 := narrow(cellProtos, only)
	families, err2 := narrow(cellFamilies, only)
	modes, err3 := narrow(cellModes, only)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return err
		}
	}
	if !slices.Contains(modes, mode) {
		return nil
	}
	for i, client := range cellClients {
		e, err := parseExpectation(word[2+i])
		if err != nil {
			return err
		}
		e.place = place
		for _, policy := range strings.Split(word[0], ",") {
			for _, endpoints := range strings.Split(word[1], ",") {
				if err := oneOf(policy, cellPolicies); err != nil {
					return err
				}
				if err := oneOf(endpoints, cellStates); err != nil {
					return err
				}
				for _, proto := range protos {
					for _, family := range families {
						c := cell{kind, policy, endpoints, client, proto, family}
						if other, twice := t[c]; twice {
							return fmt.Errorf("%v is listed at %s too", c, other.place)
						}
						t[c] = e
					}
				}
			}
		}
	}
	return nil
}

// narrow gives those of a dimension that the words name, all if they name none.
func narrow(dimension, words []string) ([]string, error) {
	var named []string
	for _, w := range words {
		if slices.Contains(dimension, w) {
			named = append(named, w)
		} else if err := oneOf(w, slices.Concat(cellProtos, cellFamilies, cellModes)); err != nil {
			return nil, err
		}
	}
	if named == nil {
		return dimension, nil
	}
	return named, nil
}

func oneOf(word string, known []string) error {
	if !slices.Contains(known, word) {
		return fmt.Errorf("%q is none of %s", word, strings.Join(known, ", "))
	}
	return nil
}

func parseExpectation(text string) (expectation, error) {
	e := expectation{text: text}
	switch text {
	case "refused":
		e.verdict = lab.Refused
		return e, nil
	case "timeout":
		e.verdict = lab.TimedOut
		return e, nil
	case "unreachable":
		e.verdict = lab.Unreachable
		return e, nil
	}
	if reason, is := strings.CutPrefix(text, "!"); is && reason != "" {
		e.impossible = reason
		return e, nil
	}
	pods, source, is := strings.Cut(text, ":")
	if !is || !slices.Contains([]string{"kept", "masq", "hairpin"}, source) {
		return e, fmt.Errorf("%q says nothing known", text)
	}
	e.verdict, e.pods, e.source = lab.Answered, strings.Split(pods, "+"), source
	return e, nil
}

// readReasons gives the reasons why cells cannot exist, by their word.
func readReasons() (map[string]string, error) {
	data, err := os.ReadFile("cells/reasons.txt")
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for _, line := range lines(data) {
		word, reason, _ := strings.Cut(line, " ")
		reasons[word] = strings.TrimSpace(reason)
		if reasons[word] == "" {
			return nil, fmt.Errorf("cells: %s has no reason", word)
		}
	}
	return reasons, nil
}

// TestCellTable: every cell of every mode is listed once; those that cannot exist
// have a reason, and each reason is needed; who answers is an endpoint.
func TestCellTable(t *testing.T) {
	reasons, err := readReasons()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, mode := range cellModes {
		table, err := readCells(mode)
		if err != nil {
			t.Fatal(err)
		}
		if len(table) != len(allCells()) {
			t.Errorf("%s: %d cells, want %d", mode, len(table), len(allCells()))
		}
		for c, e := range table {
			if e.impossible != "" {
				used[e.impossible] = true
				if reasons[e.impossible] == "" {
					t.Errorf("%s: %v: no reason %q", e.place, c, e.impossible)
				}
			}
			for _, pod := range e.pods {
				if !slices.ContainsFunc(stateEndpoints[c.endpoints], func(s podState) bool { return s.pod == pod && s.serving }) {
					t.Errorf("%s: %v: %s cannot answer", e.place, c, pod)
				}
			}
		}
	}
	for word := range reasons {
		if !used[word] {
			t.Errorf("reason %q is not needed", word)
		}
	}
}

// TestCellLines: what is not a line of the table is an error.
func TestCellLines(t *testing.T) {
	const good = "kind lb\nCluster local,both a:kept a+b:hairpin refused !absent only tcp ipv4 nftables\n"
	if err := (cellTable{}).parse("f", good, "nftables"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		"Cluster local refused refused refused refused",
		"kind other\n",
		"kind lb\nCluster local refused refused refused",
		"kind lb\nCluster local refused refused refused refused also tcp",
		"kind lb\nCluster local refused refused refused refused only sctp",
		"kind lb\nSome local refused refused refused refused",
		"kind lb\nCluster here refused refused refused refused",
		"kind lb\nCluster local ignored refused refused refused",
		"kind lb\nCluster local a+b refused refused refused",
		"kind lb\nCluster local a:seen refused refused refused",
		"kind lb\nCluster local,local refused refused refused refused",
		good + "Cluster both refused refused refused refused only udp ipv4\nCluster both refused refused refused refused only ipv4",
	} {
		if err := (cellTable{}).parse("f", bad, "nftables"); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
