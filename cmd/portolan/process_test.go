package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// process is a proxy in a network namespace of its own.
type process struct {
	*exec.Cmd
	said   bytes.Buffer // to be read when it has ended
	ended  chan struct{}
	client http.Client
	space  netns.NsHandle
}

// start runs this program as kube-proxy, in a namespace where loopback is up.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{space: namespace(t), ended: make(chan struct{})}
	p.Cmd = exec.Command(self, args...)
	p.Args[0] = "kube-proxy"
	p.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"))
	p.Stdout, p.Stderr = &p.said, &p.said
	p.client.Transport = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		inside(t, p.space, func() { conn, err = (&net.Dialer{}).DialContext(ctx, network, addr) })
		return conn, err
	}}
	inside(t, p.space, func() { err = p.Start() })
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Wait() // exitCode tells how it ended
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it has ended in most tests
		<-p.ended
	})
	return p
}

// namespace makes a network namespace that lives as long as the test.
func namespace(t *testing.T) (space netns.NsHandle) {
	t.Helper()
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if space, err = netns.New(); err != nil {
			return
		}
		var lo netlink.Link
		if lo, err = netlink.LinkByName("lo"); err == nil {
			err = netlink.LinkSetUp(lo)
		}
	}()
	<-done
	if err != nil {
		t.Fatalf("network namespace: %v", err)
	}
	t.Cleanup(func() { space.Close() })
	return space
}

// inside runs f on a thread of the namespace.
func inside(t *testing.T, space netns.NsHandle, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := netns.Set(space); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// get asks until somebody listens.
func (p *process) get(t *testing.T, url string) (int, string) {
	t.Helper()
	for {
		answer, err := p.client.Get(url)
		if errors.Is(err, syscall.ECONNREFUSED) {
			select {
			case <-p.ended:
				t.Fatalf("it ended:\n%s", &p.said)
			default:
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
}

func (p *process) exitCode() int {
	<-p.ended
	return p.ProcessState.ExitCode()
}

const processConfig = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.244.0.0/16\n"

// TestProcess: kubeadm's arguments start the proxy; both servers answer; the
// kernel is set up; a configuration file that changes ends it with 1.
func TestProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.conf")
	text := processConfig + "conntrack: {maxPerCore: 0, tcpCloseWaitTimeout: 7m}\n---\napiVersion: portolan.io/v1alpha1\nkind: ProxyOptions\nmanifests: [../../examples/nodeport]\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, "--config="+path, "--hostname-override=node-1")
	for {
		if code, _ := p.get(t, "http://127.0.0.1:10256/healthz"); code == http.StatusOK {
			break
		}
	}
	_, mode := p.get(t, "http://127.0.0.1:10249/proxyMode")
	_, metrics := p.get(t, "http://127.0.0.1:10249/metrics")
	for _, want := range []string{fmt.Sprintf("portolan_proxy_mode{mode=%q} 1", mode), `portolan_services{ip_family="IPv4"} 1`, `kubeproxy_proxy_healthz_total{code="200"}`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	if _, configz := p.get(t, "http://127.0.0.1:10249/configz"); !strings.Contains(configz, `"tcpCloseWaitTimeout":"7m0s"`) || !strings.Contains(configz, "examples/nodeport") {
		t.Errorf("configz: %s", configz)
	}
	if _, verbose := p.get(t, "http://127.0.0.1:10256/livez?verbose"); !strings.Contains(verbose, `"type":"RulesWritten","family":"IPv4","status":"True"`) {
		t.Errorf("livez: %s", verbose)
	}
	var timeout []byte
	inside(t, p.space, func() { timeout, _ = os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait") })
	if got := strings.TrimSpace(string(timeout)); got != "420" {
		t.Errorf("conntrack timeout %q", got)
	}
	if err := os.WriteFile(path, []byte(text+"# changed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code := p.exitCode(); code != 1 || !strings.Contains(p.said.String(), "content of the proxy server's configuration file was updated") {
		t.Errorf("exit code %d\n%s", code, &p.said)
	}
}

// TestProcessWithoutItsAddress: a server that cannot listen ends the process where
// that is asked for.
func TestProcessWithoutItsAddress(t *testing.T) {
	for _, flag := range []string{"--healthz-bind-address=192.0.2.77:10256", "--metrics-bind-address=192.0.2.77:10249"} {
		p := start(t, flag, "--bind-address-hard-fail", "--manifests=../../examples/nodeport", "--hostname-override=node-1")
		if code := p.exitCode(); code != 1 || !strings.Contains(p.said.String(), "192.0.2.77") {
			t.Errorf("%s: exit code %d\n%s", flag, code, &p.said)
		}
	}
}
