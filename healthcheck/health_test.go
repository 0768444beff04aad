package healthcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"portolan/service"
)

func get(t *testing.T, h http.Handler, path string) (code int, body map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if w.Code != http.StatusNotFound {
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatalf("%s: %v in %s", path, err, w.Body)
		}
		if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", path, w.Header())
		}
	}
	return w.Code, body
}

func TestD15Health(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		health := NewHealth(time.Minute, []service.Family{service.IPv4, service.IPv6})
		h := health.Handler()
		expect := func(when string, healthz, livez int) map[string]any {
			t.Helper()
			z, body := get(t, h, "/healthz")
			if l, _ := get(t, h, "/livez"); z != healthz || l != livez {
				t.Errorf("%s: healthz %d livez %d, want %d %d", when, z, l, healthz, livez)
			}
			return body
		}
		expect("start", 503, 200)
		health.Queued(service.IPv4)
		health.Queued(service.IPv6)
		health.Updated(service.IPv4)
		expect("one family written", 503, 200)
		health.Updated(service.IPv6)
		body := expect("both written", 200, 200)
		if len(body["status"].(map[string]any)) != 2 || body["nodeEligible"] != true || body["healthy"] != true {
			t.Errorf("body %v", body)
		}
		time.Sleep(time.Hour)
		expect("quiet", 200, 200)
		health.Queued(service.IPv6)
		time.Sleep(59 * time.Second)
		health.Queued(service.IPv6) // the oldest counts
		expect("waiting", 200, 200)
		time.Sleep(time.Second)
		body = expect("stuck", 503, 503)
		if body["healthy"] != false || body["status"].(map[string]any)["IPv4"].(map[string]any)["healthy"] != true {
			t.Errorf("body %v", body)
		}
		health.Updated(service.IPv6)
		expect("recovered", 200, 200)
		health.SetEligible(false)
		if body := expect("D16 node not eligible", 503, 200); body["healthy"] != true || body["nodeEligible"] != false {
			t.Errorf("body %v", body)
		}
		if code, _ := get(t, h, "/readyz"); code != 404 {
			t.Errorf("readyz %d", code)
		}
	})
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// nodePortStand is a node on loopback, its health-check node ports, and what they were
// told last.
type nodePortStand struct {
	ports *NodePorts
	node  service.Node
	last  *service.Snapshot // nil at first, as after a start
}

func newNodePortStand(t *testing.T) *nodePortStand {
	n := &nodePortStand{ports: NewNodePorts(NewHealth(time.Minute, []service.Family{service.IPv4}), service.IPv4)}
	t.Cleanup(n.ports.Close)
	n.node = service.Node{Name: "a", NodePorts: service.NodePortAddresses{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Local: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Localhost: true}}
	return n
}

var web = service.Name{Namespace: "ns", Name: "web"}

// set has the Service web be there with that health-check node port, and the same
// endpoints for each of two ports, and gives what failed.
func (n *nodePortStand) set(port uint16, endpoints ...service.Endpoint) map[service.Name]error {
	return n.update(&service.Service{Name: web, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, HealthCheckNodePort: port,
		Ports: []service.Port{{Name: "a", Endpoints: endpoints}, {Name: "b", Endpoints: endpoints}}})
}

// update has the node have this Service; nil: none.
func (n *nodePortStand) update(s *service.Service) map[service.Name]error {
	var come []*service.Service
	var gone []service.Name
	if s != nil {
		come = append(come, s)
	} else {
		gone = append(gone, web)
	}
	before := n.last
	if before == nil {
		before = &service.Snapshot{}
	}
	now := before.With(n.node, come, gone)
	failed := n.ports.Update(context.Background(), now, n.last)
	n.last = now
	return failed
}

// ask gives status 0 where nobody answers.
func (*nodePortStand) ask(port uint16) (status int, weight, body string) {
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/any/path", port))
	if err != nil {
		return 0, "", ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header.Get("X-Load-Balancing-Endpoint-Weight"), string(text)
}

func TestD39HealthCheckNodePort(t *testing.T) {
	n := newNodePortStand(t)
	endpoint := func(ip, on string, ready bool) service.Endpoint {
		return service.Endpoint{Addr: netip.AddrPortFrom(netip.MustParseAddr(ip), 8080), Ready: ready, Serving: true, Terminating: !ready, Node: on}
	}
	set := func(port uint16, endpoints ...service.Endpoint) {
		t.Helper()
		if err := n.set(port, endpoints...); len(err) > 0 {
			t.Fatal(err)
		}
	}
	first, second := freePort(t), freePort(t)
	set(first, endpoint("10.0.0.1", "a", true), endpoint("10.0.0.2", "a", true), endpoint("10.0.0.3", "b", true))
	code, weight, body := n.ask(first)
	if code != 200 || weight != "2" || !strings.Contains(body, "\t\"localEndpoints\": 2") || !strings.Contains(body, `"serviceProxyHealthy": true`) {
		t.Errorf("two local endpoints: %d %s %s", code, weight, body)
	}
	set(first, endpoint("10.0.0.1", "a", false), endpoint("10.0.0.3", "b", true))
	if code, weight, _ := n.ask(first); code != 503 || weight != "0" {
		t.Errorf("only a terminating one here: %d %s", code, weight)
	}
	set(second, endpoint("10.0.0.1", "a", true))
	if code, _, _ := n.ask(first); code != 0 {
		t.Error("the old port still answers")
	}
	if code, weight, _ := n.ask(second); code != 200 || weight != "1" {
		t.Errorf("new port: %d %s", code, weight)
	}
	n.node.Zone = "z" // the Service goes in the very Snapshot in which the Node changes
	if err := n.update(nil); len(err) > 0 {
		t.Fatal(err)
	}
	if code, _, _ := n.ask(second); code != 0 {
		t.Error("the port of a deleted Service still answers")
	}
}

// A port that somebody else has is tried again with every update.
func TestD39HealthCheckNodePortInUse(t *testing.T) {
	n := newNodePortStand(t)
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(taken.Addr().(*net.TCPAddr).Port)
	failed := n.set(port)
	if err := failed[web]; len(failed) != 1 || err == nil || !strings.Contains(err.Error(), "ns/web") {
		t.Errorf("port in use: %v", failed)
	}
	taken.Close()
	if err := n.ports.Update(context.Background(), n.last, n.last); len(err) > 0 {
		t.Errorf("port free again: %v", err)
	}
	if code, _, _ := n.ask(port); code != 503 {
		t.Errorf("port free again: %d", code)
	}
}
