package verify

import (
	"fmt"
	"strings"

	"portolan/dataplane"
)

// checkDrift tells of differences between the rules and what the proxy writes that
// no packet has shown. Where packets have shown faults of the proxy's rules, these
// say more.
func checkDrift(w *world) []Finding {
	if w.in.Services != nil && w.nodeUnknown() {
		return nil // what the proxy should write is not known either
	}
	for _, f := range w.report.Findings {
		if f.Severity == Error && f.Owner.isProxy() {
			return nil
		}
	}
	return Drift(w.proxy, w.in.Drift...)
}

// Drift are findings about plans that would make the kernel hold what is wanted:
// one for all that is missing, one for all that is not the proxy's.
func Drift(owner Owner, plans ...dataplane.Plan) (out []Finding) {
	missing := differs{code: DriftMissing, expected: "it is there"}
	foreign := differs{code: DriftForeign, expected: "nobody else writes there"}
	for _, p := range plans {
		for _, c := range p.Changes {
			for _, o := range c.Created {
				missing.add(c.Container, o.Body)
			}
			for _, o := range c.Deleted {
				foreign.add(c.Container, o.Body)
			}
			for _, r := range c.Replaced {
				missing.add(c.Container, r.New.Body)
				foreign.add(c.Container, r.Old.Body)
			}
			if len(c.Created)+len(c.Deleted)+len(c.Replaced) == 0 { // a container without content
				to := &missing
				if c.Remove {
					to = &foreign
				}
				to.add(c.Container, "(the whole of it)")
			}
		}
	}
	for _, d := range []differs{missing, foreign} {
		if len(d.where) > 0 {
			out = append(out, d.finding(owner))
		}
	}
	return out
}

// differs collects what is missing, or what is too much.
type differs struct {
	code           Code
	expected       string
	where, objects []string
}

// add takes a line or element; those of one container come one after the other.
func (d *differs) add(container, body string) {
	if len(d.where) == 0 || d.where[len(d.where)-1] != container {
		d.where = append(d.where, container)
	}
	d.objects = append(d.objects, container+": "+strings.TrimSpace(body))
}

// finding is one for all of them: they have one cause, and one mends them.
func (d *differs) finding(owner Owner) Finding {
	f := Finding{
		Code: d.code, Severity: Warning, Owner: owner, Expected: d.expected, Object: d.where[0],
		Actual: fmt.Sprintf("of what the proxy writes is missing: %s", some(d.objects)),
		Fix:    "see all of it: portolan plan --against kernel; a running proxy mends it within its sync period, so look whether it runs and what its log says",
	}
	if d.code == DriftForeign {
		f.Actual = fmt.Sprintf("not of the proxy: %s", some(d.objects))
		if owner.Name != "" {
			f.Fix = "see all of it: portolan plan --against kernel; look who writes into the proxy's chains and tables"
		}
		f.Owner = Owner{admin, "the proxy does not write it"}
	}
	if n := len(d.where); n > 1 {
		f.Object = fmt.Sprintf("%d chains, sets or maps", n)
	}
	return f
}
