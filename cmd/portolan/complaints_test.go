package main

import (
	"log/slog"
	"strings"
	"testing"

	"portolan/service"
	"portolan/source/apiserver"
)

// What is not followed is logged when it comes, once.
func TestComplaintLog(t *testing.T) {
	var text strings.Builder
	events := 0
	complain := newComplaintLog(slog.New(slog.NewTextHandler(&text, nil)), func(n apiserver.Note) {
		events++
		if n.Service.Name != "web" || !n.Warning || n.Reason != optionNotFollowed || strings.Contains(n.Message, "\n") {
			t.Errorf("Event %+v", n)
		}
	})
	said := func() int {
		n := strings.Count(text.String(), "\n")
		text.Reset()
		return n
	}
	web := func(options ...string) *service.Service {
		s := &service.Service{Name: service.Name{Namespace: "default", Name: "web"}}
		for _, o := range options {
			s.Complaints = append(s.Complaints, service.Complaint{Option: o, Value: "x\ny", Reason: "no"})
		}
		return s
	}
	now := &service.Snapshot{}
	for i, step := range []struct {
		options []string
		want    int
	}{
		{nil, 0}, {[]string{"a"}, 1}, {[]string{"a"}, 0}, {[]string{"a", "b"}, 1}, {nil, 0}, {[]string{"b"}, 1},
	} {
		now = now.With(now.Node, []*service.Service{web(step.options...)}, nil)
		complain(now)
		if got := said(); got != step.want {
			t.Errorf("step %d: %d lines, want %d", i, got, step.want)
		}
	}
	complain(now.With(now.Node, nil, []service.Name{{Namespace: "default", Name: "web"}}))
	if said() != 0 || events != 3 {
		t.Errorf("a Service that went is complained about, or there are %d Events instead of 3", events)
	}
}
