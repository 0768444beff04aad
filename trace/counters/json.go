package counters

import (
	"encoding/json"
	"fmt"
	"io"
)

// growthJSON and sumJSON are the JSON form of a report.
type growthJSON struct {
	Table   string `json:"table"`
	Chain   string `json:"chain"`
	Rule    int    `json:"rule"`
	Text    string `json:"text"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Slack   uint64 `json:"slack,omitempty"`
	Reset   bool   `json:"reset,omitempty"`
	New     bool   `json:"new,omitempty"`
}

type sumJSON struct {
	Table string `json:"table"`
	Chain string `json:"chain"`
	OK    bool   `json:"ok"`
	Text  string `json:"text"`
}

// WriteJSON writes a report as JSON: apiVersion, grown, sums.
func WriteJSON(w io.Writer, rep Report) error {
	out := struct {
		APIVersion string       `json:"apiVersion"`
		Grown      []growthJSON `json:"grown"`
		Sums       []sumJSON    `json:"sums"`
	}{APIVersion: "portolan.io/v1", Grown: []growthJSON{}, Sums: []sumJSON{}}
	for _, g := range rep.Grown {
		out.Grown = append(out.Grown, growthJSON{g.Table, g.Chain, g.Rule, g.Text, g.Packets, g.Bytes, g.Slack, g.Reset, g.New})
	}
	for _, s := range rep.Sums {
		out.Sums = append(out.Sums, sumJSON{s.Table, s.Chain, s.OK, s.Text})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(out); err != nil {
		return fmt.Errorf("counters: writing the report as JSON: %w", err)
	}
	return nil
}
