package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"portolan/config"
	"portolan/kernel/iptables"
	"portolan/service"
)

// TestRivalIsSaid: rules that come back after they were removed are another proxy's that
// runs still; what a first try left is not.
func TestRivalIsSaid(t *testing.T) {
	var log bytes.Buffer
	o := newTakeover(config.NFTables, iptables.NFT, slog.New(slog.NewTextHandler(&log, nil)), nil)
	said := func(f service.Family, removed []string, all bool) string {
		log.Reset()
		o.say(f, removed, all)
		return log.String()
	}
	for i, step := range []struct {
		family  service.Family
		removed []string
		all     bool
		want    string
	}{
		{service.IPv4, nil, true, ""},
		{service.IPv4, []string{"a"}, false, "level=INFO"},
		{service.IPv4, []string{"b"}, true, "level=INFO"},
		{service.IPv6, []string{"a"}, true, "level=INFO"},
		{service.IPv4, nil, true, ""},
		{service.IPv4, []string{"a"}, true, "only one may run on a node"},
	} {
		got := said(step.family, step.removed, step.all)
		if !strings.Contains(got, step.want) || step.want == "" && got != "" || step.want == "level=INFO" && !strings.Contains(got, "taken over") {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

// TestTakenAddressNamesWhatToDo: whether it is tried again or not.
func TestTakenAddressNamesWhatToDo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := newCrew(t.Context())
	conf := config.Config{HealthzBindAddress: taken.Addr().String(), BindAddressHardFail: true}
	c.serve(conf, servers{health: http.NotFoundHandler()}, slog.New(slog.DiscardHandler))
	<-c.ctx.Done() // the server that cannot listen ends all
	if err := c.end(); err == nil || !strings.Contains(err.Error(), "only one Service proxy may run on a node") {
		t.Errorf("%v", err)
	}
}

// TestRightsNeeded: whoever may read the rules without being root is not told to be.
func TestRightsNeeded(t *testing.T) {
	denied := errors.New("denied")
	if err := rightsNeeded(1000, denied); !errors.Is(err, denied) || !strings.Contains(err.Error(), "needs root, and this is user 1000: denied") {
		t.Errorf("%v", err)
	}
	if rightsNeeded(1000, nil) != nil || rightsNeeded(0, denied) != denied {
		t.Error("said where it is not so")
	}
}
