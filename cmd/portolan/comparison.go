package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"portolan/service"
	"portolan/trace/explain"
	"portolan/verify"
)

func printComparison(w io.Writer, names [2]string, in [2]verify.Input, r verify.Comparison, f verifyFlags) error {
	if f.output == "json" {
		return writeComparison(w, names, in, r)
	}
	_, err := io.WriteString(w, comparisonText(names, r))
	return err
}

// comparisonText is a comparison for people: what changes, by Service. Clients that
// find the same at one frontend are told of together.
func comparisonText(names [2]string, r verify.Comparison) string {
	var b strings.Builder
	for i, side := range []string{"A", "B"} {
		fmt.Fprintf(&b, "%s: %s (%s)\n", side, names[i], rulesText(r.Modes[i], r.Owners[i]))
	}
	b.WriteByte('\n')
	for list := r.Changes; len(list) > 0; {
		first := list[0]
		n := 1
		for n < len(list) && list[n].Service == first.Service {
			n++
		}
		b.WriteString(first.Service + "\n")
		for _, same := range alike(list[:n]) {
			b.WriteString(changeText(same))
		}
		b.WriteByte('\n')
		list = list[n:]
	}
	b.WriteString(comparisonSummary(r))
	return b.String()
}

func rulesText(mode string, owner verify.Owner) string {
	if mode == "" {
		return "no Service rules"
	}
	return mode + ", " + owner.Name
}

// alike groups changes that differ only in their clients, or in the address of the node
// that a NodePort is called at.
func alike(list []verify.Change) (out [][]verify.Change) {
	for _, c := range list {
		i := slices.IndexFunc(out, func(group []verify.Change) bool {
			x := group[0]
			return x.Kind == c.Kind && (x.Frontend == c.Frontend || c.Kind == nodePortKind) && x.Effect == c.Effect && whyText(x) == whyText(c) && x.Asked == c.Asked &&
				x.Sides[0].Verdict == c.Sides[0].Verdict && x.Sides[1].Verdict == c.Sides[1].Verdict
		})
		if i < 0 {
			out = append(out, []verify.Change{c})
			continue
		}
		out[i] = append(out[i], c)
	}
	return out
}

// whyText is why, without the address of the node that a NodePort was called at.
func whyText(c verify.Change) string {
	if c.Kind != nodePortKind {
		return c.Why
	}
	at, _, _ := strings.Cut(c.Frontend, "/")
	return strings.ReplaceAll(c.Why, at, "it")
}

var nodePortKind = service.NodePort.String()

// changeText is one paragraph about clients of a Service port that fare alike.
func changeText(group []verify.Change) string {
	c := group[0]
	var frontends, clients []string
	for _, x := range group {
		frontends, clients = append(frontends, x.Frontend), append(clients, x.Client)
	}
	slices.Sort(clients)
	var b strings.Builder
	fmt.Fprintf(&b, "  %s %s, from %s: %s\n", c.Kind, strings.Join(slices.Compact(frontends), ", "), strings.Join(slices.Compact(clients), ", "), c.Effect)
	for i, side := range []string{"A:", "B:"} {
		s := c.Sides[i]
		fmt.Fprintf(&b, "    %-8s %s", side, s.Verdict)
		if s.Rule != "" {
			fmt.Fprintf(&b, " (%s, of %s)", s.Rule, s.Owner.Name)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "    %-8s %s\n    %-8s %s\n", "asked:", c.Asked, "why:", whyText(c))
	return b.String()
}

// comparisonSummary is the last line, and what was assumed.
func comparisonSummary(r verify.Comparison) string {
	counts := map[verify.Effect]int{}
	services := map[string]bool{}
	for _, c := range r.Changes {
		counts[c.Effect]++
		services[c.Service] = true
	}
	text := fmt.Sprintf("%d packets to %d Service ports followed on both sides: %d end otherwise, of %d Service ports", r.Compared, r.Ports, len(r.Changes), len(services))
	if len(r.Changes) > 0 {
		text += fmt.Sprintf(" (%d mended, %d worsened, %d that the Service leaves open, %d not certain)",
			counts[verify.Mended], counts[verify.Worsened], counts[verify.Otherwise], counts[verify.Untold])
	}
	text += "\n"
	for _, a := range r.Assumptions {
		text += "assumed: " + a + "\n"
	}
	return text
}

type jsonComparison struct {
	APIVersion  string       `json:"apiVersion"`
	A           jsonCompared `json:"a"`
	B           jsonCompared `json:"b"`
	Packets     int          `json:"packets"` // followed on each side
	Ports       int          `json:"servicePorts"`
	Changes     []jsonTurn   `json:"changes"`
	Assumptions []string     `json:"assumptions"`
}

type jsonCompared struct {
	Name  string `json:"name"`
	Mode  string `json:"mode"` // iptables, nftables, ipvs, or empty
	Owner string `json:"owner"`
}

type jsonTurn struct {
	Service  string   `json:"service"`
	Kind     string   `json:"kind"`
	Frontend string   `json:"frontend"`
	Client   string   `json:"client"`
	Effect   string   `json:"effect"` // mended, worsened, otherwise, cannot be told
	A        jsonFate `json:"a"`
	B        jsonFate `json:"b"`
	Asked    string   `json:"asked"`
	Why      string   `json:"why"`
}

type jsonFate struct {
	Verdict string          `json:"verdict"`
	AsAsked bool            `json:"asAsked"`
	Rule    string          `json:"rule,omitempty"`
	Owner   string          `json:"owner,omitempty"`
	Trace   *explain.Answer `json:"trace"`
}

// writeComparison writes the JSON form.
func writeComparison(w io.Writer, names [2]string, in [2]verify.Input, r verify.Comparison) error {
	out := jsonComparison{
		APIVersion: explain.APIVersion,
		A:          jsonCompared{names[0], r.Modes[0], r.Owners[0].Name}, B: jsonCompared{names[1], r.Modes[1], r.Owners[1].Name},
		Packets: r.Compared, Ports: r.Ports, Changes: []jsonTurn{}, Assumptions: append([]string{}, r.Assumptions...),
	}
	for _, c := range r.Changes {
		var fates [2]jsonFate
		for i, s := range c.Sides {
			a := explain.ToJSON(in[i].Tracer, *s.Trace)
			fates[i] = jsonFate{s.Verdict, s.AsAsked, s.Rule, s.Owner.Name, &a}
		}
		out.Changes = append(out.Changes, jsonTurn{c.Service, c.Kind, c.Frontend, c.Client, c.Effect.String(), fates[0], fates[1], c.Asked, c.Why})
	}
	return printJSON(w, out)
}
