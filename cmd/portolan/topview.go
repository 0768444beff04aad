package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"portolan/conntrack"
)

// topView is what top shows at a time.
type topView struct {
	at            time.Time
	during        time.Duration // in which new connections were counted
	lost, deaf    bool          // some new connections were missed, or all
	entries, most int           // connections that the kernel tracks, of all kinds, and may track; 0 is not known
	loads         []conntrack.Load
}

// print prints one look.
func (v topView) print(w io.Writer, f topFlags) error {
	if f.output == "json" {
		return v.printJSON(w)
	}
	var b strings.Builder
	if file, is := w.(*os.File); is && !f.once && isTerminal(file) {
		b.WriteString("\x1b[H\x1b[2J") // home, and clear
	}
	v.text(&b, f.endpoints)
	if !f.once {
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// text is a line for each Service port, and below it those of its endpoints that are
// most out of balance, at most so many.
func (v topView) text(b *strings.Builder, most int) {
	fmt.Fprintf(b, "%d of at most %d connections tracked, at %s\n", v.entries, v.most, v.at.Format(time.TimeOnly))
	switch {
	case v.deaf:
		b.WriteString("NEW/S is not known: net.netfilter.nf_conntrack_events is 0\n")
	case v.lost:
		b.WriteString("NEW/S is too low: more began than could be heard of\n")
	}
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tPORT\tENDPOINT\tSTATE\tLIVE\tEXPECTED\tSKEW\tNEW/S\tUNREPLIED\tSTALE")
	for _, l := range v.loads {
		skew := fmt.Sprintf("%.0f%%", 100*l.Skew())
		fmt.Fprintf(t, "%s\t%d/%s\t%s\t\t%d\t\t%s\t%s\t%d\t%d\n", l.Name, l.Port, l.Protocol, l.Family, l.Live, skew, v.rateText(l.New), l.Unreplied, l.Stale)
		shown := worst(l.Endpoints, most)
		for _, e := range shown {
			fmt.Fprintf(t, "\t\t%s\t%s\t%d\t%.1f\t%+.1f\t%s\t%d\t%d\n", e.Addr, e.State, e.Live, e.Expected, float64(e.Live)-e.Expected, v.rateText(e.New), e.Unreplied, e.Stale)
		}
		if n := len(l.Endpoints) - len(shown); n > 0 {
			fmt.Fprintf(t, "\t\tand %d more\t\t\t\t\t\t\t\n", n)
		}
	}
	t.Flush() // a strings.Builder takes everything
}

// worst returns the endpoints that are most out of balance, in their order.
func worst(list []conntrack.EndpointLoad, most int) []conntrack.EndpointLoad {
	if most <= 0 || len(list) <= most {
		return list
	}
	out := slices.Clone(list)
	off := func(e conntrack.EndpointLoad) float64 { return math.Abs(float64(e.Live) - e.Expected) }
	slices.SortStableFunc(out, func(a, b conntrack.EndpointLoad) int { return cmp.Compare(off(b), off(a)) })
	out = out[:most]
	slices.SortFunc(out, func(a, b conntrack.EndpointLoad) int { return a.Addr.Compare(b.Addr) })
	return out
}

// rate is new connections a second; nil where it is not known.
func (v topView) rate(n int) *float64 {
	if v.deaf || v.during <= 0 {
		return nil
	}
	rate := math.Round(10*float64(n)/v.during.Seconds()) / 10
	return &rate
}

func (v topView) rateText(n int) string {
	if rate := v.rate(n); rate != nil {
		return fmt.Sprintf("%.1f", *rate)
	}
	return "-"
}

// The JSON of top; docs/top.md explains the fields.
type (
	jsonTop struct {
		APIVersion string     `json:"apiVersion"`
		Time       time.Time  `json:"time"`
		Seconds    float64    `json:"seconds"`
		Lost       bool       `json:"lost"`
		Entries    int        `json:"entries"`
		MaxEntries int        `json:"maxEntries"`
		Ports      []jsonPort `json:"ports"`
	}
	jsonPort struct {
		Namespace    string         `json:"namespace"`
		Service      string         `json:"service"`
		PortName     string         `json:"portName"`
		Port         uint16         `json:"port"`
		Protocol     string         `json:"protocol"`
		Family       string         `json:"family"`
		Affinity     bool           `json:"affinity"`
		Live         int            `json:"live"`
		Skew         float64        `json:"skew"`
		Misplaced    float64        `json:"misplaced"`
		NewPerSecond *float64       `json:"newPerSecond"`
		Unreplied    int            `json:"unreplied"`
		Stale        int            `json:"stale"`
		Endpoints    []jsonEndpoint `json:"endpoints"`
	}
	jsonEndpoint struct {
		Address      string   `json:"address"`
		State        string   `json:"state"`
		Live         int      `json:"live"`
		Expected     float64  `json:"expected"`
		NewPerSecond *float64 `json:"newPerSecond"`
		Unreplied    int      `json:"unreplied"`
		Stale        int      `json:"stale"`
	}
)

func (v topView) printJSON(w io.Writer) error {
	out := jsonTop{APIVersion: "portolan.io/v1", Time: v.at, Seconds: v.during.Seconds(), Lost: v.lost,
		Entries: v.entries, MaxEntries: v.most, Ports: []jsonPort{}}
	for _, l := range v.loads {
		p := jsonPort{Namespace: l.Name.Service.Namespace, Service: l.Name.Service.Name, PortName: l.Name.Port,
			Port: l.Port, Protocol: string(l.Protocol), Family: l.Family.String(), Affinity: l.Affinity,
			Live: l.Live, Skew: l.Skew(), Misplaced: l.Misplaced(), NewPerSecond: v.rate(l.New),
			Unreplied: l.Unreplied, Stale: l.Stale, Endpoints: []jsonEndpoint{}}
		for _, e := range l.Endpoints {
			p.Endpoints = append(p.Endpoints, jsonEndpoint{Address: e.Addr.String(), State: e.State.String(), Live: e.Live,
				Expected: e.Expected, NewPerSecond: v.rate(e.New), Unreplied: e.Unreplied, Stale: e.Stale})
		}
		out.Ports = append(out.Ports, p)
	}
	return printJSON(w, out)
}
