package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// URL is where the API server is, from the host it runs on and from every host of
// its lab; without a host, from this process.
func (s *Server) URL() string { return "https://" + s.address.String() }

// CA is the certificate authority of the API server, PEM.
func (s *Server) CA() []byte { return s.ca }

// Token is the administrator's.
func (s *Server) Token() string { return s.admin }

// Kubeconfig writes a file with which clients are who the token says; it goes away
// with the server.
func (s *Server) Kubeconfig(token string) (string, error) {
	f, err := os.CreateTemp(s.dir, "kubeconfig-")
	if err != nil {
		return "", fmt.Errorf("controlplane: %w", err)
	}
	_, err = fmt.Fprintf(f, `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: user, user: {token: %q}}]
contexts: [{name: lab, context: {cluster: lab, user: user}}]
current-context: lab
`, s.URL(), base64.StdEncoding.EncodeToString(s.ca), token)
	if err != nil {
		return "", fmt.Errorf("controlplane: %w", err)
	}
	return f.Name(), f.Close()
}

// DialContext connects from where the control plane runs, so that clients of this
// process reach it whether it is in a lab or not. It fits rest.Config.Dial and
// http.Transport.
func (s *Server) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if s.host != nil {
		return s.host.DialContext(ctx, network, address)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// Client asks the API server as one user. Its methods may be called from several
// goroutines.
type Client struct {
	url  string
	http *http.Client
}

// Client returns a client that is who the token says. The caller closes it.
func (s *Server) Client(token string) *Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.ca)
	return &Client{s.URL(), &http.Client{Transport: bearer{token, &http.Transport{
		DialContext:         s.DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 32,
	}}}}
}

// Close closes the client's connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

type bearer struct {
	token string
	next  *http.Transport
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// CloseIdleConnections is what http.Client.CloseIdleConnections looks for.
func (b bearer) CloseIdleConnections() { b.next.CloseIdleConnections() }

// StatusError is an answer of the API server that is no success.
type StatusError struct {
	Code int    // HTTP
	Text string // what the server says
}

func (e StatusError) Error() string { return fmt.Sprintf("API server: %d: %s", e.Code, e.Text) }

// Call asks one thing as the administrator, see Client.Call.
func (s *Server) Call(ctx context.Context, method, path string, in, out any) error {
	c := s.Client(s.admin)
	defer c.Close()
	return c.Call(ctx, method, path, in, out)
}

// Call sends in as JSON unless it is nil, and decodes the answer into out unless
// that is nil. A PATCH is a merge patch. What the server refuses is a StatusError.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("controlplane: %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return fmt.Errorf("controlplane: %s %s: %w", method, path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("controlplane: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("controlplane: %s %s: %w", method, path, err)
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("controlplane: %s %s: %w", method, path, StatusError{answer.StatusCode, string(text)})
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("controlplane: %s %s: %w", method, path, err)
	}
	return nil
}

// Compact makes etcd forget all revisions but the newest. The API server answers
// watches from its own memory, so they notice only when it starts again.
func (s *Server) Compact(ctx context.Context) error {
	c := s.etcdClient()
	defer c.Close()
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	anyKey := map[string]string{"key": base64.StdEncoding.EncodeToString([]byte{0})}
	if err := c.Call(ctx, http.MethodPost, "/v3/kv/range", anyKey, &now); err != nil {
		return err
	}
	return c.Call(ctx, http.MethodPost, "/v3/kv/compaction", map[string]any{"revision": now.Header.Revision, "physical": true}, nil)
}

func (s *Server) etcdURL() string { return fmt.Sprintf("http://127.0.0.1:%d", s.etcd[0]) }

func (s *Server) etcdClient() *Client {
	return &Client{s.etcdURL(), &http.Client{Transport: &http.Transport{DialContext: s.DialContext}}}
}

func (s *Server) etcdReady(ctx context.Context, ended <-chan struct{}) error {
	c := s.etcdClient()
	defer c.Close()
	return await(ctx, ended, func(ctx context.Context) error {
		return c.Call(ctx, http.MethodGet, "/health", nil, nil)
	})
}

// apiServerReady waits for the certificate that the server makes at its first
// start, then for its /readyz.
func (s *Server) apiServerReady(ctx context.Context, ended <-chan struct{}) error {
	return await(ctx, ended, func(ctx context.Context) (err error) {
		if s.ca, err = os.ReadFile(s.file("certificates/apiserver.crt")); err != nil {
			return err
		}
		return s.Call(ctx, http.MethodGet, "/readyz", nil, nil)
	})
}

// await tries until it works, ctx ends, the program ends or patience does.
func await(ctx context.Context, ended <-chan struct{}, try func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		one, done := context.WithTimeout(ctx, 5*time.Second)
		err := try(one)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("it ended")
		case <-ctx.Done():
			return err
		case <-again.C:
		}
	}
}
