package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"portolan/dataplane"
	"portolan/service"
)

// trouble is what is wrong with one Service, or with the node under the empty name.
type trouble struct {
	object string
	reason Reason
}

// newsOf compares what is wrong now with what was told before.
func (l *loop) newsOf(r Result) (out []News) {
	now := maps.Clone(l.troubles)
	if r.Err != nil {
		now[trouble{reason: SyncFailed}] = r.Err.Error()
	} else {
		clear(now)
		for name, err := range r.Refused {
			reason := ServiceInvalid
			if refusal := (kernelRefusal{}); errors.As(err, &refusal) {
				reason = ServiceRefused
			}
			now[trouble{name, reason}] = err.Error()
		}
	}
	l.conflicts(now, r.Report)
	for _, t := range slices.SortedFunc(maps.Keys(now), trouble.compare) {
		// One that is only tried again by a full look is told again then: it counts.
		if text := now[t]; text != l.troubles[t] || r.Full && t.reason != AddressConflict {
			out = append(out, News{Object: t.object, Family: l.family, Reason: t.reason, Message: text})
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(l.troubles), trouble.compare) {
		if _, is := now[t]; !is {
			out = append(out, News{Object: t.object, Family: l.family, Reason: t.reason, Over: true,
				Message: l.troubles[t], Gone: t.object != "" && r.Snapshot.Service(nameOf(t.object)) == nil})
		}
	}
	l.troubles = now
	if !r.Report.Damage.None() {
		out = append(out, News{Family: l.family, Reason: RulesRepaired, Message: damageText(r)})
	}
	return out
}

func (t trouble) compare(o trouble) int {
	return cmp.Or(cmp.Compare(t.object, o.object), cmp.Compare(t.reason, o.reason))
}

// conflicts adds who does not get an address.
func (l *loop) conflicts(now map[trouble]string, report dataplane.Report) {
	if len(report.Lost)+len(report.Settled) == 0 { // as before
		for t, text := range l.troubles {
			if t.reason == AddressConflict {
				now[t] = text
			}
		}
		return
	}
	maps.DeleteFunc(now, func(t trouble, _ string) bool { return t.reason == AddressConflict })
	rules := map[[2]string][]string{} // loser and winner
	for _, c := range l.sync.Conflicts() {
		pair := [2]string{c.Loser.Name, c.Winner.Name}
		if !slices.Contains(rules[pair], c.Key.Name) {
			rules[pair] = append(rules[pair], c.Key.Name)
		}
	}
	for _, pair := range slices.SortedFunc(maps.Keys(rules), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		t := trouble{pair[0], AddressConflict}
		text := fmt.Sprintf("Service %s is older and has what this one asks for too: %s", pair[1], strings.Join(rules[pair], ", "))
		if before := now[t]; before != "" {
			text = before + "; " + text
		}
		now[t] = text
	}
}

// nameOf is the name of a Service that owns objects.
func nameOf(owner string) service.Name {
	namespace, name, _ := strings.Cut(owner, "/")
	return service.Name{Namespace: namespace, Name: name}
}

// kernelRefusal is a Service's error that the kernel gave.
type kernelRefusal struct{ err error }

func (k kernelRefusal) Error() string { return fmt.Sprintf("the kernel refused its rules: %v", k.err) }
func (k kernelRefusal) Unwrap() error { return k.err }

// logNews says the news in the log.
func (l *loop) logNews(list []News) {
	for _, n := range list {
		attrs := []any{"reason", string(n.Reason)}
		if n.Object != "" {
			attrs = append(attrs, "service", n.Object)
		}
		switch {
		case n.Over:
			l.log.Info("trouble is over", append(attrs, "was", n.Message)...)
		case n.Reason == SyncFailed: // told with the sync
		case n.Reason == AddressConflict:
			l.log.Warn("two Services ask for one address and port; the older one has it", append(attrs, "error", n.Message)...)
		case n.Reason == RulesRepaired:
			l.log.Warn("rules were repaired", append(attrs, "what", n.Message)...)
		default:
			l.log.Error("a Service is not programmed as it asks; what was known of it stays in force", append(attrs, "error", n.Message)...)
		}
	}
}
