package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portolan/service"
	"portolan/source/kube"
)

// oldServer is an API server without streaming lists and without protobuf. It tells
// of one EndpointSlice in a list, then of the next in a watch, then that it has
// forgotten the version; the next list has another.
type oldServer struct {
	mu       sync.Mutex
	requests []*url.URL
	lists    int
}

func (s *oldServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.URL)
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	answer := func(code int, v any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	kind := map[string]string{"services": "ServiceList", "nodes": "NodeList", "endpointslices": "EndpointSliceList"}[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
	version := map[bool]string{true: "discovery.k8s.io/v1", false: "v1"}[kind == "EndpointSliceList"]
	switch {
	case strings.HasSuffix(r.URL.Path, "/servicecidrs"):
		answer(404, status(404, metav1.StatusReasonNotFound, "the server could not find the requested resource"))
	case q.Get("sendInitialEvents") != "":
		answer(422, status(422, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden"))
	case q.Get("watch") == "" && kind == "EndpointSliceList":
		s.lists++
		answer(200, map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]any{"resourceVersion": "5"},
			"items": []any{wire(slice("a", "1", "web", map[bool]string{true: "10.244.1.1", false: "10.244.1.3"}[s.lists == 1]), s.lists)}})
	case q.Get("watch") == "":
		items := []any{}
		if kind == "ServiceList" {
			items = append(items, svc("web", "1", "10.96.0.1"))
		} else {
			items = append(items, node("1", nil))
		}
		answer(200, map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]any{"resourceVersion": "5"}, "items": items})
	case kind == "EndpointSliceList" && s.lists == 1:
		answer(200, map[string]any{"type": "ADDED", "object": wire(slice("b", "6", "web", "10.244.1.2"), 6)})
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": status(410, metav1.StatusReasonExpired, "too old resource version")})
	default:
		w.(http.Flusher).Flush()
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
	}
}

func status(code int32, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: code, Reason: reason, Message: message}
}

func wire(s *discovery.EndpointSlice, version int) *discovery.EndpointSlice {
	s.TypeMeta = metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"}
	s.ResourceVersion = strings.Repeat("1", version)
	return s
}

// A server that has no streaming lists is read all the same, and so is one without
// ServiceCIDRs; one that forgot the version of a watch is listed again; each request has
// kube-proxy's selectors.
func TestOldServer(t *testing.T) {
	handler := &oldServer{}
	server := httptest.NewServer(handler)
	defer server.Close()
	client, err := Connect(Connection{Master: server.URL})
	must(t, err)
	s := sourceOf(client, kube.DetectClusterCIDR, &logText{})
	snapshots := make(chan string)
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		done <- s.Watch(ctx, nil, func(now *service.Snapshot) {
			select {
			case snapshots <- endpoints(now, "web"):
			case <-ctx.Done():
			}
		})
	}()
	timeout := time.After(time.Minute)
	for last := ""; last != "10.244.1.3"; {
		select {
		case last = <-snapshots:
			t.Log(last)
		case <-timeout:
			server.CloseClientConnections()
			t.Fatalf("the last endpoints are %s", last)
		}
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the watch: %v", err)
	}
	handler.mu.Lock()
	defer handler.mu.Unlock()
	want := map[string][2]string{
		"/api/v1/services":                         {"!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None"},
		"/apis/discovery.k8s.io/v1/endpointslices": {"!service.kubernetes.io/headless", ""},
		"/apis/networking.k8s.io/v1/servicecidrs":  {"", ""},
		"/api/v1/nodes":                            {"", "metadata.name=node1"},
	}
	for _, u := range handler.requests {
		w, is := want[u.Path]
		if q := u.Query(); !is || q.Get("labelSelector") != w[0] || q.Get("fieldSelector") != w[1] {
			t.Errorf("request %v, want selectors %q", u, w)
		}
	}
}

// Where the API server is, by flags, file and environment, and what is said when nothing
// tells.
func TestConnect(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	must(t, os.WriteFile(file, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1:6443"}}]}`), 0o600))
	broken := filepath.Join(dir, "broken")
	must(t, os.WriteFile(broken, []byte("clusters: 3"), 0o600))
	for _, c := range []struct {
		in       Connection
		host, no string
	}{
		{Connection{Kubeconfig: file}, "https://192.0.2.1:6443", ""},
		{Connection{Kubeconfig: file, Master: "https://192.0.2.2"}, "https://192.0.2.2", ""},
		{Connection{Master: "http://192.0.2.3:8080", QPS: 3, Burst: 4}, "http://192.0.2.3:8080", ""},
		{Connection{Kubeconfig: filepath.Join(dir, "none")}, "", "none"},
		{Connection{Kubeconfig: broken}, "", "broken"},
		{Connection{}, "", "in-cluster"},
	} {
		client, err := Connect(c.in)
		switch {
		case c.no != "":
			if err == nil || !strings.Contains(err.Error(), c.no) {
				t.Errorf("%+v: error %v, want one with %q", c.in, err, c.no)
			}
		case err != nil || client.Host != c.host:
			t.Errorf("%+v: %v, %v, want %s", c.in, client, err, c.host)
		}
	}
}

// TestCompression: answers come compressed unless the kubeconfig says that they should
// not.
func TestCompression(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Accept-Encoding")
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	for disabled, want := range map[bool]string{false: "gzip", true: ""} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		must(t, os.WriteFile(file, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c"}}],
			"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true, "disable-compression": %v}}]}`, server.URL, disabled), 0o600))
		client, err := Connect(Connection{Kubeconfig: file})
		must(t, err)
		_ = client.core.Get().Resource("services").Do(t.Context()).Error() // refused
		if got := <-asked; got != want && (disabled || !strings.Contains(got, want)) {
			t.Errorf("disabled %v: accepts %q", disabled, got)
		}
	}
}

// An error of the API server says what to do about it.
func TestExplain(t *testing.T) {
	slices := (&Client{}).endpointSlices()
	group := schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
	for _, c := range []struct {
		err  error
		want []string
		not  string
	}{
		{apierrors.NewForbidden(group, "", errors.New(`User "nobody" cannot`)),
			[]string{"watch endpointslices is not allowed", "verbs list and watch", "[endpointslices]", `"discovery.k8s.io"`, `User "nobody"`}, ""},
		{apierrors.NewUnauthorized("no"), []string{"watch endpointslices", "token or certificate"}, ""},
		{&url.Error{Op: "Get", URL: "https://192.0.2.1/x?timeoutSeconds=411", Err: errors.New("connection refused")},
			[]string{"watch endpointslices", "connection refused"}, "411"},
	} {
		got := explain("watch", slices, c.err)
		for _, w := range c.want {
			if !strings.Contains(got.Error(), w) {
				t.Errorf("%v: %v lacks %q", c.err, got, w)
			}
		}
		if c.not != "" && strings.Contains(got.Error(), c.not) {
			t.Errorf("%v has %q", got, c.not)
		}
	}
}

// The same trouble is told once, its end too; what a reflector solves, not at all.
func TestTrouble(t *testing.T) {
	log := &logText{}
	s := source(kube.DetectClusterCIDR, log)
	trouble := newTrouble(s.log, (&Client{}).services())
	count := func(text string) int { return strings.Count(log.text.String(), text) }
	refused := errors.New("connection refused")
	trouble.report("watch", apierrors.NewInvalid(schema.GroupKind{}, "", nil))
	trouble.report("list", apierrors.NewResourceExpired("too old"))
	trouble.report("watch", nil)
	if got := log.text.String(); got != "" {
		t.Errorf("told without trouble: %s", got)
	}
	for range 5 {
		trouble.report("watch", refused)
	}
	trouble.report("list", refused)
	if c := trouble.contact(); c.Resource != "services" || c.Heard.IsZero() || c.Failing.Before(c.Heard) || !strings.Contains(c.Err, "connection refused") {
		t.Errorf("while it lasts: %+v", c)
	}
	trouble.report("list", nil)
	if no, yes := count("no news"), count("answers again"); no != 2 || yes != 0 {
		t.Errorf("told %d times and the end %d times, want 2 and 0", no, yes)
	}
	trouble.report("watch", nil)
	heard := trouble.contact()
	if !heard.Failing.IsZero() || heard.Err != "" {
		t.Errorf("when it is over: %+v", heard)
	}
	trouble.report("watch", nil)
	trouble.report("event", nil)
	if c := trouble.contact(); !c.Heard.After(heard.Heard) {
		t.Errorf("an event is not heard: %+v", c)
	}
	if n := count("answers again"); n != 1 {
		t.Errorf("the end told %d times", n)
	}
}

// That a proxy does without a resource is told once, whatever it is asked.
func TestTroubleOfWhatIsNotNeeded(t *testing.T) {
	log := &logText{}
	s := source(kube.DetectClusterCIDR, log)
	trouble := newTrouble(s.log, (&Client{}).serviceCIDRs())
	resource := schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}
	for range 3 {
		trouble.report("watch", apierrors.NewForbidden(resource, "", errors.New(`User "nobody" cannot`)))
		trouble.report("list", apierrors.NewNotFound(resource, ""))
	}
	got := log.text.String()
	if strings.Count(got, "\n") != 1 {
		t.Errorf("not told once:\n%s", got)
	}
	for _, want := range []string{"level=WARN", "leave this node", "[servicecidrs]", `"networking.k8s.io`} {
		if !strings.Contains(strings.ReplaceAll(got, `\"`, `"`), want) {
			t.Errorf("the log lacks %q:\n%s", want, got)
		}
	}
	trouble.report("list", errors.New("connection refused"))
	if !log.has("no news from the API server") {
		t.Error("other trouble is not told")
	}
}

// The pause after an error, by what it is and how often it came.
func TestPause(t *testing.T) {
	no := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for _, c := range []struct {
		err   error
		tries int
		want  time.Duration
	}{
		{nil, 0, retryMin}, {errors.New("no route"), 1, retryMin}, {errors.New("no route"), 100, retryMax},
		{no, 1, retryMin}, {no, 20, 2 * time.Second}, {no, 1000, refusedMax},
	} {
		if got := pause(c.err, c.tries); got != c.want {
			t.Errorf("%v, try %d: %v, want %v", c.err, c.tries, got, c.want)
		}
	}
}
