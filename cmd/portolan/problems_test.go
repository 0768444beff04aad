package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"portolan/source/manifests"
)

// TestRefusedManifestsAreSaid: in the log once, and in a condition as long as they are
// refused, since the first one was.
func TestRefusedManifestsAreSaid(t *testing.T) {
	var log bytes.Buffer
	l := newProblemLog(slog.New(slog.NewTextHandler(&log, nil)))
	if c := l.conditions(); c != nil {
		t.Errorf("before anything was read: %+v", c)
	}
	warning := manifests.Problem{File: "a.yaml", Warning: true, Err: errors.New("odd")}
	first := manifests.Problem{File: "b.yaml", Err: errors.New("wrong")}
	second := manifests.Problem{File: "c.yaml", Err: errors.New("bad")}
	check := func(status, message string, problems ...manifests.Problem) {
		t.Helper()
		l.report(problems)
		c := l.conditions()[0]
		if c.Type != "ManifestsRead" || c.Status != status || c.Message != message || (c.Since != nil) != (status == "False") {
			t.Errorf("%+v, want %s %q", c, status, message)
		}
	}
	check("True", "no document is refused", warning)
	check("False", "b.yaml: wrong", warning, first)
	began := *l.conditions()[0].Since
	check("False", "b.yaml: wrong; and 1 more, which the log has", first, second)
	if c := l.conditions()[0]; !c.Since.Equal(began) {
		t.Errorf("since %v, want %v", c.Since, began)
	}
	check("True", "no document is refused")
	if n := strings.Count(log.String(), "b.yaml: wrong"); n != 1 || strings.Count(log.String(), "\n") != 3 {
		t.Errorf("log:\n%s", log.String())
	}
}
