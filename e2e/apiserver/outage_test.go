package apiserver

import (
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	"portolan/lab"
)

// cut has the control plane refuse node1, or no longer; other callers are served.
func (w *world) cut(action string) {
	w.t.Helper()
	address, err := url.Parse(w.server.URL())
	if err != nil {
		w.t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	node := w.node.Addrs[0].String()
	for _, rule := range [][]string{
		{"INPUT", "-s", node, "-p", "tcp", "--dport", port, "-j", "REJECT", "--reject-with", "tcp-reset"},
		{"OUTPUT", "-d", node, "-p", "tcp", "--sport", port, "!", "--tcp-flags", "RST", "RST", "-j", "DROP"}, // news on open connections
	} {
		args := append([]string{"-w", action}, rule...)
		out, err := w.Node("control").Command(w.t.Context(), lab.HostVariant, "iptables", args...).CombinedOutput()
		if err != nil {
			w.t.Fatalf("iptables %s: %v: %s", action, err, out)
		}
	}
}

// rightWithin is how soon after the return of the API server what changed meanwhile is
// to be right: 1 s on a machine that does nothing else. The test fails far beyond.
const rightWithin = 5 * time.Second

// An API server that goes, comes back, and has forgotten what it said: the last
// state stays, and what changed meanwhile is right soon after.
func TestOutages(t *testing.T) {
	w := newWorld(t)
	w.web()
	ctx, s := t.Context(), w.server
	p := w.start(proxyToken, "--proxy-mode", "nftables", "--hostname-override", "node1").healthy()
	w.answers(webIP, "a")

	outages := []struct {
		name string
		down func() error
		up   func() error
	}{
		{"stopped", func() error { return s.APIServer.Stop(ctx) }, func() error { return s.APIServer.Start(ctx) }},
		{"killed", s.APIServer.Kill, func() error { return s.APIServer.Start(ctx) }},
		{"killed, and etcd compacted", s.APIServer.Kill, func() error { return errors.Join(s.Compact(ctx), s.APIServer.Start(ctx)) }},
		{"with etcd killed", func() error { return errors.Join(s.APIServer.Kill(), s.Etcd.Kill()) },
			func() error { return errors.Join(s.Etcd.Start(ctx), s.APIServer.Start(ctx)) }},
		{"unreachable", func() error { return nil }, func() error { return nil }},
	}
	pods := []string{"a", "b"}
	for i, o := range outages {
		before, after := pods[i%2], pods[(i+1)%2]
		if err := o.down(); err != nil {
			t.Fatalf("%s: %v", o.name, err)
		}
		w.answers(webIP, before)
		// The node cannot reach it while the slice changes.
		w.cut("-A")
		if err := o.up(); err != nil {
			t.Fatalf("%s: %v", o.name, err)
		}
		w.call("PUT", slicesPath+"/web-1", w.slice("web", after), nil)
		if i == 2 { // more is forgotten than the change
			if err := s.Compact(ctx); err != nil {
				t.Fatal(err)
			}
		}
		w.answers(webIP, before)
		w.cut("-D")
		took := w.answers(webIP, after)
		if took > rightWithin {
			t.Errorf("API server %s: right only %v after its return", o.name, took)
		}
		t.Logf("API server %s: right %v after its return", o.name, took.Round(time.Millisecond))
	}
	p.says("no news from the API server")
	p.says("the API server answers again")

	// What went while nobody looked is gone.
	w.cut("-A")
	w.call("DELETE", servicesPath+"/web", nil, nil)
	if err := errors.Join(s.APIServer.Kill(), s.Compact(ctx), s.APIServer.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	w.answers(webIP, pods[len(outages)%2])
	w.cut("-D")
	w.becomes(webIP, gone("nftables"))
}

// A proxy that starts before its API server leaves the rules of the last one alone
// until it knows better.
func TestSlowStart(t *testing.T) {
	w := newWorld(t)
	w.web()
	args := []string{"--proxy-mode", "nftables", "--hostname-override", "node1"}
	first := w.start(proxyToken, args...).healthy()
	w.answers(webIP, "a")
	first.stop()
	if err := w.server.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	p := w.start(proxyToken, args...)
	p.says("no news from the API server")
	w.answers(webIP, "a")
	if err := w.server.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.call("PUT", slicesPath+"/web-1", w.slice("web", "b"), nil)
	w.answers(webIP, "b")
	p.healthy()
}
