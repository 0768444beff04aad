package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"portolan/config"
	"portolan/service"
	"portolan/source/apiserver"
)

// What is not followed is logged when it comes, once.
func TestComplaintLog(t *testing.T) {
	var text strings.Builder
	events := 0
	complain := newComplaintLog(complaintsIn(config.Config{}), slog.New(slog.NewTextHandler(&text, nil)), func(n apiserver.Note) {
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

// TestComplaintsInIPVSMode: weights that the scheduler does not heed are named, there
// and nowhere else.
func TestComplaintsInIPVSMode(t *testing.T) {
	weighty := service.Port{Endpoints: []service.Endpoint{{Weight: 3}, {}}}
	for _, c := range []struct {
		mode      config.Mode
		scheduler string // of the configuration
		service   service.Service
		want      string
	}{
		{config.IPVS, "", service.Service{Ports: []service.Port{weighty}}, ""},
		{config.IPVS, "dh", service.Service{}, ""},
		{config.IPVS, "dh", service.Service{Ports: []service.Port{weighty}},
			"annotation portolan.io/weights is not followed: the scheduler dh of IPVS pays no heed to weights; wrr and wlc give each endpoint its part"},
		{config.IPVS, "dh", service.Service{Scheduler: "sh", Ports: []service.Port{weighty}}, ""},
		{config.IPVS, "dh", service.Service{Algorithm: service.RoundRobin, Ports: []service.Port{weighty}}, ""},
		{config.IPVS, "", service.Service{Scheduler: "fo", SlowStart: time.Minute},
			"annotation portolan.io/slow-start is not followed: the scheduler fo of IPVS sends all to the real server with the highest weight; wrr and wlc give each endpoint its part"},
		{config.NFTables, "dh", service.Service{Scheduler: "dh", Ports: []service.Port{weighty}}, ""},
	} {
		list := complaintsIn(config.Config{Mode: c.mode, IPVS: config.IPVSSettings{Scheduler: c.scheduler}})(&c.service)
		got := ""
		for _, complaint := range list {
			got += complaint.String()
		}
		if got != c.want {
			t.Errorf("%s %q, %+v:\n%s, want\n%s", c.mode, c.scheduler, c.service, got, c.want)
		}
	}
}
