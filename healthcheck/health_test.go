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

func TestD39HealthCheckNodePort(t *testing.T) {
	health := NewHealth(time.Minute, []service.Family{service.IPv4})
	ports := NewNodePorts(health, service.IPv4)
	defer ports.Close()
	node := service.Node{Name: "a", NodePorts: service.NodePortAddresses{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Local: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Localhost: true}}
	endpoint := func(ip, on string, ready bool) service.Endpoint {
		return service.Endpoint{Addr: netip.AddrPortFrom(netip.MustParseAddr(ip), 8080), Ready: ready, Serving: true, Terminating: !ready, Node: on}
	}
	name := service.Name{Namespace: "ns", Name: "web"}
	var last *service.Snapshot
	update := func(port uint16, endpoints ...service.Endpoint) {
		t.Helper()
		svc := &service.Service{Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, HealthCheckNodePort: port,
			Ports: []service.Port{{Name: "a", Endpoints: endpoints}, {Name: "b", Endpoints: endpoints}}}
		now := (&service.Snapshot{}).With(node, []*service.Service{svc}, nil)
		if last != nil {
			now = last.With(node, []*service.Service{svc}, nil)
		}
		if err := ports.Update(context.Background(), now, last); len(err) > 0 {
			t.Fatal(err)
		}
		last = now
	}
	ask := func(port uint16) (int, string, string) {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/any/path", port))
		if err != nil {
			return 0, "", ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, resp.Header.Get("X-Load-Balancing-Endpoint-Weight"), string(body)
	}
	first, second := freePort(t), freePort(t)
	update(first, endpoint("10.0.0.1", "a", true), endpoint("10.0.0.2", "a", true), endpoint("10.0.0.3", "b", true))
	code, weight, body := ask(first)
	if code != 200 || weight != "2" || !strings.Contains(body, "\t\"localEndpoints\": 2") || !strings.Contains(body, `"serviceProxyHealthy": true`) {
		t.Errorf("two local endpoints: %d %s %s", code, weight, body)
	}
	update(first, endpoint("10.0.0.1", "a", false), endpoint("10.0.0.3", "b", true))
	if code, weight, _ := ask(first); code != 503 || weight != "0" {
		t.Errorf("only a terminating one here: %d %s", code, weight)
	}
	update(second, endpoint("10.0.0.1", "a", true))
	if code, _, _ := ask(first); code != 0 {
		t.Error("the old port still answers")
	}
	if code, weight, _ := ask(second); code != 200 || weight != "1" {
		t.Errorf("new port: %d %s", code, weight)
	}
	moved := node // the Service goes in the very Snapshot in which the Node changes
	moved.Zone = "z"
	gone := last.With(moved, nil, []service.Name{name})
	if err := ports.Update(context.Background(), gone, last); len(err) > 0 {
		t.Fatal(err)
	}
	if code, _, _ := ask(second); code != 0 {
		t.Error("the port of a deleted Service still answers")
	}
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	svc := &service.Service{Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		HealthCheckNodePort: uint16(taken.Addr().(*net.TCPAddr).Port)}
	back := gone.With(moved, []*service.Service{svc}, nil)
	failed := ports.Update(context.Background(), back, gone)
	if err := failed[name]; len(failed) != 1 || err == nil || !strings.Contains(err.Error(), "ns/web") {
		t.Errorf("port in use: %v", failed)
	}
	taken.Close()
	if err := ports.Update(context.Background(), back, back); len(err) > 0 {
		t.Errorf("port free again: %v", err)
	}
	if code, _, _ := ask(svc.HealthCheckNodePort); code != 503 {
		t.Errorf("port free again: %d", code)
	}
}
