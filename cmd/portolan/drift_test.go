package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"portolan/agent"
	"portolan/dataplane"
	"portolan/service"
	"portolan/verify"
)

// The condition tells of the last repair, is False while it does not succeed, and the
// codes are those of verify.
func TestDriftConditions(t *testing.T) {
	if agent.DriftMissing != string(verify.DriftMissing) || agent.DriftForeign != string(verify.DriftForeign) {
		t.Fatal("the proxy and verify have different codes for the same")
	}
	var d driftLog
	d.note(time.Unix(1, 0), agent.Result{}) // before there are families
	d.start([]service.Family{service.IPv4, service.IPv6})
	damage := agent.Result{Family: service.IPv4, Report: dataplane.Report{Damage: dataplane.Damage{Containers: 1, Missing: 3, Foreign: 2}}}
	failed := damage
	failed.Err = errors.New("no memory")
	for _, c := range []struct {
		what   string
		result agent.Result
		status string
		says   string
	}{
		{"a write like any other", agent.Result{Family: service.IPv4}, "True", "nobody else has changed the rules"},
		{"a write that fails, without damage", agent.Result{Family: service.IPv4, Err: failed.Err}, "True", "nobody else"},
		{"a repair", damage, "True", "1 times; the last, at 1970-01-01T00:16:40Z (drift-missing: 3, drift-foreign: 2), is put right"},
		{"a failed write after it", agent.Result{Family: service.IPv4, Err: failed.Err}, "True", "is put right"},
		{"a repair that fails", failed, "False", "could not be put right"},
		{"it fails again", agent.Result{Family: service.IPv4, Err: failed.Err}, "False", "could not be put right"},
		{"it succeeds", agent.Result{Family: service.IPv4}, "True", "2 times; the last, "},
	} {
		d.note(time.Unix(1000, 0), c.result)
		list := d.conditions()
		if len(list) != 2 || list[0].Status != c.status || !strings.Contains(list[0].Message, c.says) || (list[0].Since != nil) != (c.status == "False") {
			t.Errorf("%s: %+v", c.what, list)
		}
		if list[1].Status != "True" || !strings.Contains(list[1].Message, "nobody else") {
			t.Errorf("%s: the other family: %+v", c.what, list[1])
		}
	}
}
