package iptables

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// ProbeChain is the chain that Accepts writes to. It is left behind only when the
// program is killed in the middle; whoever looks after our chains removes it then.
const ProbeChain = "KUBE-PORTOLAN-PROBE"

// Trial is a rule that the kernel, or its programs, may not take.
type Trial struct{ Table, Rule string }

// Accepts tells which rules are taken: they are written to chains that nothing leads
// to, and removed. All are tried at once, and one by one only when that is refused.
func (t *Tool) Accepts(ctx context.Context, trials ...Trial) ([]bool, error) {
	accepted := make([]bool, len(trials))
	all, err := t.try(ctx, trials)
	for i := range trials {
		if accepted[i] = all; all || err != nil || len(trials) == 1 {
			continue
		}
		accepted[i], err = t.try(ctx, trials[i:i+1])
	}
	return accepted, err
}

// try writes rules and removes them. One section for a table would not do, since its
// outcome is all that the kernel gets to see.
func (t *Tool) try(ctx context.Context, trials []Trial) (taken bool, err error) {
	var text strings.Builder
	var done []string
	for _, first := range trials {
		if slices.Contains(done, first.Table) {
			continue
		}
		done = append(done, first.Table)
		empty := "*" + first.Table + "\n:" + ProbeChain + " - [0:0]\n"
		text.WriteString(empty)
		for _, trial := range trials {
			if trial.Table == first.Table {
				text.WriteString("-A " + ProbeChain + " " + trial.Rule + "\n")
			}
		}
		text.WriteString("COMMIT\n" + empty + "-X " + ProbeChain + "\nCOMMIT\n")
	}
	err = t.Restore(ctx, []byte(text.String()))
	var e *RestoreError
	if errors.As(err, &e) && e.Refused {
		return false, nil
	}
	return err == nil, err
}
