package apiserver

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"portolan/agent"
	"portolan/healthcheck"
	"portolan/lab"
)

// event waits for an Event of a reason about an object.
func (w *world) event(kind, name, reason string) v1.Event {
	w.t.Helper()
	var found v1.Event
	w.await("an Event "+reason+" about "+kind+" "+name, func() bool {
		var list v1.EventList
		w.call("GET", "/api/v1/namespaces/default/events", nil, &list)
		i := slices.IndexFunc(list.Items, func(e v1.Event) bool {
			return e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == reason
		})
		if i >= 0 {
			found = list.Items[i]
		}
		return i >= 0
	})
	return found
}

// failures asks the proxy what it remembers, by object and reason.
func (p *proxy) failures() map[string]agent.Failure {
	p.w.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: p.node.DialContext, DisableKeepAlives: true}}
	answer, err := client.Get(strings.TrimSuffix(p.metrics, "/metrics") + "/debug/failures")
	if err != nil {
		p.w.t.Fatal(err)
	}
	defer answer.Body.Close()
	var body struct {
		APIVersion string          `json:"apiVersion"`
		Failures   []agent.Failure `json:"failures"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil || body.APIVersion != "portolan.io/v1" {
		p.w.t.Fatalf("/debug/failures: %v, %+v", err, body)
	}
	out := map[string]agent.Failure{}
	for _, f := range body.Failures {
		out[f.Object+" "+string(f.Reason)] = f
	}
	return out
}

// condition asks the proxy for one of its conditions.
func (p *proxy) condition(kind string) healthcheck.Condition {
	p.w.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: p.node.DialContext, DisableKeepAlives: true}}
	answer, err := client.Get("http://127.0.0.1:10256/healthz?verbose")
	if err != nil {
		p.w.t.Fatal(err)
	}
	defer answer.Body.Close()
	var body struct {
		Conditions []healthcheck.Condition `json:"conditions"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		p.w.t.Fatal(err)
	}
	i := slices.IndexFunc(body.Conditions, func(c healthcheck.Condition) bool { return c.Type == kind })
	if i < 0 {
		p.w.t.Fatalf("no condition %s in %+v", kind, body.Conditions)
	}
	return body.Conditions[i]
}

// contested makes a Service with that external IP, which others may have too.
func (w *world) contested(address, name, ip, pod string) *v1.Service {
	s := newService(name, ip)
	s.Spec.ExternalIPs = []string{address}
	w.call("POST", slicesPath, w.slice(name, pod), nil)
	w.call("POST", servicesPath, s, s)
	return s
}

// What goes wrong with a Service or with the node is an Event, what is mended too, and
// the proxy remembers both.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	w.web()
	const address = "198.51.100.7"
	older := w.contested(address, "older", "10.96.0.21", "a")
	p := w.start(proxyToken, "--proxy-mode", "nftables", "--hostname-override", "node1").healthy()
	w.answers(address, "a")
	if e := w.event("Node", "node1", "Starting"); e.Type != v1.EventTypeNormal || e.InvolvedObject.UID != "node1" {
		t.Errorf("the Event of the start: %+v", e)
	}

	if c := p.condition(healthcheck.APIServerHeard); c.Status != "True" || c.LastSuccess == nil {
		t.Errorf("%+v", c)
	}

	// The younger of two owners of an address hears of it, and when it has it.
	w.await("another second", func() bool { // ages have seconds
		var now v1.Event
		now.Name, now.InvolvedObject.Namespace = "clock", "default"
		w.call("POST", "/api/v1/namespaces/default/events", now, &now)
		w.call("DELETE", "/api/v1/namespaces/default/events/clock", nil, nil)
		return now.CreationTimestamp.After(older.CreationTimestamp.Time)
	})
	younger := w.contested(address, "younger", "10.96.0.22", "b")
	e := w.event("Service", "younger", "ServiceAddressConflict")
	if e.Type != v1.EventTypeWarning || e.InvolvedObject.UID != younger.UID || !strings.Contains(e.Message, "default/older") || !strings.Contains(e.Message, address) {
		t.Errorf("the loser's Event: %+v", e)
	}
	if f := p.failures()["default/younger ServiceAddressConflict"]; f.Message == "" || f.Over != nil {
		t.Errorf("what is remembered of the loser: %+v", f)
	}
	w.answers(address, "a")
	w.call("DELETE", servicesPath+"/older", nil, nil)
	w.answers(address, "b")
	if e := w.event("Service", "younger", "ServiceProgrammed"); e.Type != v1.EventTypeNormal {
		t.Errorf("the Event when it is over: %+v", e)
	}
	if f := p.failures()["default/younger ServiceAddressConflict"]; f.Over == nil {
		t.Errorf("what is remembered when it is over: %+v", f)
	}

	// Somebody throws the rules away.
	if out, err := w.node.Command(t.Context(), lab.HostVariant, "nft", "flush", "table", "ip", "portolan").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.answers(webIP, "a")
	if e := w.event("Node", "node1", "RulesRepaired"); e.Type != v1.EventTypeWarning || !strings.Contains(e.Message, "IPv4") {
		t.Errorf("the Event of a repair: %+v", e)
	}
	w.portTaken()
}

// portTaken makes a Service whose health-check node port is somebody else's, until it
// is not.
func (w *world) portTaken() {
	w.t.Helper()
	var taken net.Listener
	if err := w.node.Do(func() (err error) { taken, err = net.Listen("tcp4", "0.0.0.0:30777"); return err }); err != nil {
		w.t.Fatal(err)
	}
	defer taken.Close()
	s := newService("local", "10.96.0.23")
	s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceTypeLoadBalancer, v1.ServiceExternalTrafficPolicyLocal, 30777
	w.call("POST", slicesPath, w.slice("local", "a"), nil)
	w.call("POST", servicesPath, s, s)
	if e := w.event("Service", "local", "FailedToStartServiceHealthcheck"); !strings.Contains(e.Message, "30777") {
		w.t.Errorf("the Event of a port that is taken: %+v", e)
	}
	taken.Close()
	w.call("PUT", slicesPath+"/local-1", w.slice("local", "a", "b"), nil) // it is tried again with every write
	w.event("Service", "local", "ServiceProgrammed")
}
