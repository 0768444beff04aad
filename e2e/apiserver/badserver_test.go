package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan/lab"
)

// middleman stands between a proxy and its API server, and does to the answers what
// it is told to.
type middleman struct {
	address string
	real    *httputil.ReverseProxy

	mu   sync.Mutex
	mood mood
	ctx  context.Context // of all requests that are being answered; ends with the mood
	end  context.CancelFunc
}

// mood answers a request; the real server is at hand.
type mood func(http.ResponseWriter, *http.Request, *httputil.ReverseProxy)

func honest(w http.ResponseWriter, r *http.Request, real *httputil.ReverseProxy) {
	real.ServeHTTP(w, r)
}

// always answers with the same thing.
func always(status int, kind, text string) mood {
	return func(w http.ResponseWriter, _ *http.Request, _ *httputil.ReverseProxy) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text) // who hangs up does
	}
}

func silent(_ http.ResponseWriter, r *http.Request, _ *httputil.ReverseProxy) { <-r.Context().Done() }

// slow takes its time for everything.
func slow(w http.ResponseWriter, r *http.Request, real *httputil.ReverseProxy) {
	select {
	case <-time.After(700 * time.Millisecond):
		real.ServeHTTP(w, r)
	case <-r.Context().Done():
	}
}

// torn breaks off in the middle of an answer.
func torn(w http.ResponseWriter, r *http.Request, real *httputil.ReverseProxy) {
	real.ServeHTTP(&tearing{ResponseWriter: w, left: 600}, r)
}

type tearing struct {
	http.ResponseWriter
	left int
}

func (t *tearing) Write(b []byte) (int, error) {
	n, err := t.ResponseWriter.Write(b[:min(len(b), t.left)])
	if t.left -= n; t.left == 0 && err == nil {
		t.Flush()
		panic(http.ErrAbortHandler) // hangs up
	}
	return n, err
}

func (t *tearing) Flush() { t.ResponseWriter.(http.Flusher).Flush() }

func noise(n int) string {
	b := make([]byte, n)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return string(b)
}

// newMiddleman listens on the host of the control plane.
func (w *world) newMiddleman() *middleman {
	w.t.Helper()
	target, err := url.Parse(w.server.URL())
	if err != nil {
		w.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.server.CA())
	m := &middleman{real: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set("Authorization", "Bearer "+proxyToken) // clients name nobody without TLS
	}}}
	m.real.FlushInterval = -1
	m.real.Transport = &http.Transport{DialContext: w.server.DialContext, TLSClientConfig: &tls.Config{RootCAs: roots}}
	m.real.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	m.become(honest)
	host := w.Node("control")
	var listener net.Listener
	if err := host.Do(func() (err error) {
		listener, err = net.Listen("tcp4", ":0")
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	m.address = net.JoinHostPort(host.Addrs[0].String(), port)
	server := &http.Server{Handler: m}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(func() {
		m.become(honest)
		server.Close()
		serving.Wait()
	})
	return m
}

func (m *middleman) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	mood, end := m.mood, m.ctx
	m.mu.Unlock()
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	defer context.AfterFunc(end, stop)()
	mood(w, r.WithContext(ctx), m.real)
}

// become changes the mood, and hangs up on who is being answered.
func (m *middleman) become(now mood) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.end != nil {
		m.end()
	}
	m.mood = now
	m.ctx, m.end = context.WithCancel(context.Background())
}

// kubeconfig leads to the middleman.
func (m *middleman) kubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "http://%s"}}]
users: [{name: user, user: {}}]
contexts: [{name: lab, context: {cluster: lab, user: user}}]
current-context: lab
`, m.address)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// An API server that is slow, breaks off, says nothing or nonsense changes nothing of
// what is in force; clients notice nothing, and when it has come to its senses, what
// changed meanwhile is in force soon.
func TestMoods(t *testing.T) {
	w := newWorld(t)
	w.web()
	m := w.newMiddleman()
	w.startWith(m.kubeconfig(t), "--proxy-mode", "nftables", "--hostname-override", "node1").healthy()
	w.answers(webIP, "a")
	const list = `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"web","namespace":"default"},"spec":{"clusterIP":"nonsense"}}]}`
	moods := []struct {
		name string
		mood mood
	}{
		{"silent", silent},
		{"torn", torn},
		{"500", always(500, "text/plain", "etcd has no leader")},
		{"429", always(429, "text/plain", "later")},
		{"401", always(401, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":401}`)},
		{"404", always(404, "text/html", "<html>not here</html>")},
		{"a login page", always(200, "text/html", "<html>who are you?</html>")},
		{"noise", always(200, "application/json", noise(10_000))},
		{"noise, as protobuf", always(200, "application/vnd.kubernetes.protobuf", "k8s\x00"+noise(10_000))},
		{"nothing", always(200, "application/json", "")},
		{"an empty object", always(200, "application/json", "{}")},
		{"an empty list", always(200, "application/json", `{"kind":"List","apiVersion":"v1","items":[]}`)},
		{"other objects", always(200, "application/json", `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"web","namespace":"default","resourceVersion":"1"}}}`+"\n")},
		{"half a list", always(200, "application/json", list[:len(list)/2])},
	}
	stop := w.callAll(webIP)
	pods := []string{"a", "b"}
	for i, mood := range moods {
		before, after := pods[i%2], pods[(i+1)%2]
		m.become(mood.mood)
		w.call("PUT", slicesPath+"/web-1", w.slice("web", after), nil)
		time.Sleep(700 * time.Millisecond) // in which nothing may happen
		if mood.name != "torn" {           // what comes through before it breaks off may be true
			w.answers(webIP, before)
		}
		m.become(honest)
		t.Logf("%s: right %v after it", mood.name, w.answers(webIP, after).Round(time.Millisecond))
	}
	m.become(slow)
	w.call("PUT", slicesPath+"/web-1", w.slice("web", "c"), nil)
	t.Logf("slow: right after %v", w.answers(webIP, "c").Round(time.Millisecond))
	stop()
}

// callAll calls an address all the time until the returned function is called. None
// may fail.
func (w *world) callAll(ip string) (stop func()) {
	ended := make(chan struct{})
	var calling sync.WaitGroup
	calls := 0
	var failed []string
	calling.Go(func() {
		for {
			o := w.Client.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(ip), 80), patience)
			if calls++; o.Verdict != lab.Answered {
				failed = append(failed, o.String())
			}
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return func() {
		close(ended)
		calling.Wait()
		w.t.Logf("%d calls, %d failed", calls, len(failed))
		if len(failed) > 0 {
			w.t.Errorf("%d of %d calls failed: %s", len(failed), calls, strings.Join(failed[:min(len(failed), 5)], "; "))
		}
	}
}
