package iptables

import (
	"context"
	"errors"
	"iter"
	"strings"

	"portolan/dataplane"
)

// Dump is a kernel that holds what an iptables-save output of one family says,
// or the text of a plan, and cannot be written. With dataplane.Sync.Diff it tells what differs.
type Dump struct {
	backend *Backend
	text    string
}

// NewDump returns a Dump that is read with the options of b.
func NewDump(b *Backend, text string) Dump { return Dump{b, text} }

// OptionsOf returns o as they were when the rules of an iptables-save output
// were written, as far as the rules tell.
func OptionsOf(o Options, text string) Options {
	o.Nfacct = Counters{
		InvalidDropped:    strings.Contains(text, InvalidDroppedCounter),
		LocalhostAccepted: strings.Contains(text, LocalhostAcceptedCounter),
	}
	if strings.Contains(text, "-A KUBE-POSTROUTING ") {
		o.RandomFully = strings.Contains(text, " --random-fully")
	}
	if strings.Contains(text, "-A KUBE-FORWARD ") {
		o.LiberalTCP = !strings.Contains(text, "--ctstate INVALID ")
	}
	return o
}

// Observe yields what the text has of ours.
func (d Dump) Observe(context.Context) iter.Seq2[dataplane.Object, error] {
	return func(yield func(dataplane.Object, error) bool) {
		var t observedTable
		for line := range strings.Lines(d.text) {
			line = strings.TrimSpace(line)
			if table, ok := strings.CutPrefix(line, "*"); ok {
				t = observedTable{b: d.backend, table: table, yield: yield}
			}
			if strings.HasPrefix(line, "[") { // counters of iptables-save -c
				_, line, _ = strings.Cut(line, "] ")
			}
			if t.b != nil && !t.line(savedForm(line)) {
				return
			}
		}
	}
}

// savedForm maps the commands of a plan that iptables-save never prints.
func savedForm(line string) string {
	if rule, ok := strings.CutPrefix(line, "-I "); ok {
		return "-A " + rule
	}
	if chain, ok := strings.CutPrefix(line, "-N "); ok {
		return ":" + chain + " - [0:0]"
	}
	return line
}

// Apply refuses: a dump is a thing of the past.
func (d Dump) Apply(context.Context, dataplane.Plan) error {
	return errors.New("iptables: a dump cannot be written")
}

// Changes never sends.
func (d Dump) Changes(context.Context) <-chan dataplane.Notice { return nil }
