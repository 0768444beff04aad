package healthcheck

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"portolan/service"
)

// conditionsOf asks a Health of two families, which is healthy, for its conditions; their
// names are "FAMILY TYPE".
func conditionsOf(t *testing.T, health *Health) map[string]Condition {
	t.Helper()
	w := httptest.NewRecorder()
	health.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/livez?verbose", nil))
	var body struct {
		Healthy    bool
		Conditions []Condition
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || len(body.Conditions) != 6 || body.Conditions[0].Family != "IPv4" || !body.Healthy {
		t.Fatalf("%v in %s", err, w.Body)
	}
	out := map[string]Condition{}
	for _, c := range body.Conditions {
		out[c.Family+" "+c.Type] = c
	}
	return out
}

// TestVerbose: the conditions name what failed, since when, and what waits.
func TestVerbose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting := Pending{}
		health := NewHealth(time.Minute, []service.Family{service.IPv6, service.IPv4})
		health.TellPending(func(service.Family) Pending { return waiting })
		see := func() map[string]Condition { return conditionsOf(t, health) }
		for name, c := range see() {
			if want := map[bool]string{true: "True", false: "False"}[strings.HasSuffix(name, NothingPending)]; c.Status != want {
				t.Errorf("at start %s: %+v", name, c)
			}
		}
		waiting = Pending{Services: 2, Endpoints: 1}
		health.Queued(service.IPv4)
		start := time.Now()
		health.Attempted(service.IPv4, Attempt{Err: errors.New("no lock")})
		time.Sleep(time.Second)
		health.Attempted(service.IPv4, Attempt{Err: errors.New("still no lock")})
		now := see()
		if c := now["IPv4 RulesWritten"]; c.Status != "False" || !strings.Contains(c.Message, "still no lock") || !c.Since.Equal(start) || c.LastSuccess != nil {
			t.Errorf("%+v", c)
		}
		if c := now["IPv4 NothingPending"]; c.Status != "False" || *c.Pending != waiting || !c.Since.Equal(start) {
			t.Errorf("%+v", c)
		}
		waiting = Pending{}
		time.Sleep(time.Second)
		health.Attempted(service.IPv4, Attempt{Failed: map[string]error{"default/web": errors.New("two owners")}})
		now = see()
		if c := now["IPv4 RulesWritten"]; c.Status != "True" || !c.LastSuccess.Equal(start.Add(2*time.Second)) || c.Since != nil {
			t.Errorf("%+v", c)
		}
		if c := now["IPv4 ServicesProgrammed"]; c.Status != "False" || c.Services["default/web"] != "two owners" {
			t.Errorf("%+v", c)
		}
		if c := now["IPv6 ServicesProgrammed"]; c.Status != "False" || len(c.Services) > 0 {
			t.Errorf("%+v", c)
		}
		health.Attempted(service.IPv4, Attempt{})
		for name, c := range see() {
			if strings.HasPrefix(name, "IPv4") && c.Status != "True" {
				t.Errorf("%s: %+v", name, c)
			}
		}
	})
}

// What comes while a write is under way waits from its end on.
func TestChangesDuringAWriteWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		health := NewHealth(time.Minute, []service.Family{service.IPv4})
		health.TellPending(func(service.Family) Pending { return Pending{Services: 1} })
		health.Updated(service.IPv4)
		time.Sleep(time.Minute)
		if health.Alive() {
			t.Error("a change that is never written goes unnoticed")
		}
	})
}

// TestBodies: kube-proxy's, to the byte.
func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		health := NewHealth(time.Minute, []service.Family{service.IPv4})
		health.Updated(service.IPv4)
		for path, want := range map[string]string{
			"/healthz": `{"lastUpdated":"T","currentTime":"T","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"T","healthy":true}}}`,
			"/livez":   `{"lastUpdated":"T","currentTime":"T","healthy":true,"status":{"IPv4":{"lastUpdated":"T","healthy":true}}}`,
		} {
			w := httptest.NewRecorder()
			health.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if got := strings.ReplaceAll(w.Body.String(), time.Now().UTC().Format(time.RFC3339Nano), "T"); got != want {
				t.Errorf("%s: %s", path, got)
			}
		}
		w := httptest.NewRecorder()
		(&nodePortServer{name: service.Name{Namespace: "default", Name: "svc"}, health: health, local: 1}).ServeHTTP(w, nil)
		const want = "{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"svc\"\n\t},\n\t\"localEndpoints\": 1,\n\t\"serviceProxyHealthy\": true\n}"
		if w.Body.String() != want || w.Code != 200 || w.Header().Get("X-Load-Balancing-Endpoint-Weight") != "1" {
			t.Errorf("%d %v\n%s", w.Code, w.Header(), w.Body)
		}
	})
}
