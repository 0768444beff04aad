package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"portolan/bench/figures"
	"portolan/e2e/controlplane"
	"portolan/e2e/program"
	"portolan/lab"
)

// A product is one of the two, in one mode.
type product struct {
	name figures.Product
	mode figures.Mode
}

func (p product) String() string { return string(p.name) + " " + string(p.mode) }

// variant is which iptables programs the node of a mode has.
func variant(m figures.Mode) lab.Variant {
	switch m.Peer() {
	case figures.Legacy:
		return lab.Legacy
	case figures.NFT:
		return lab.NFT
	}
	return lab.HostVariant
}

// binaries are the programs that are measured.
type binaries struct{ kubeProxy, portolan string }

// proxy is a running product.
type proxy struct {
	product
	node *lab.Node
	cmd  *lab.Cmd
	log  *program.Log
}

// start starts a product on a node. minSync is its minSyncPeriod, 0 its default;
// recorder, unless empty, is a folder with programs that it runs instead of the usual
// ones.
func (w *world) start(ctx context.Context, b binaries, p product, node *lab.Node, from *controlplane.Server, minSync time.Duration, recorder string) (*proxy, error) {
	path, args := b.portolan, []string{"proxy", "-v", "4"}
	if p.name == figures.KubeProxy {
		path, args = b.kubeProxy, []string{"--v=2"}
	}
	kubeconfig, err := from.Kubeconfig(from.Token())
	if err != nil {
		return nil, err
	}
	config := filepath.Join(w.dir, "config.yaml")
	if err := os.WriteFile(config, []byte(configuration(p.mode, minSync, kubeconfig)), 0o644); err != nil {
		return nil, fmt.Errorf("bench: configuration: %w", err)
	}
	out := &proxy{product: p, node: node, log: &program.Log{}}
	out.cmd = node.Command(ctx, variant(p.mode), path, append(args, "--config", config)...)
	if recorder != "" {
		out.cmd.Prefer(recorder)
	}
	out.cmd.Stdout, out.cmd.Stderr = io.Discard, out.log
	return out, out.cmd.Start()
}

// configuration is the one that both products read, but for the compact layout,
// which kube-proxy does not have; minSync 0 leaves out what it says, so that each
// has its default.
func configuration(m figures.Mode, minSync time.Duration, kubeconfig string) string {
	mode, pace, layout := "iptables", "", ""
	if m == figures.Nftables {
		mode = "nftables"
	}
	if minSync > 0 {
		pace = fmt.Sprintf("iptables: {minSyncPeriod: %[1]s}\nnftables: {minSyncPeriod: %[1]s}\n", minSync)
	}
	if m != m.Peer() {
		layout = "---\napiVersion: portolan.io/v1alpha1\nkind: ProxyOptions\niptables: {layout: compact}\n"
	}
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
hostnameOverride: %s
bindAddress: 0.0.0.0
metricsBindAddress: 127.0.0.1:10249
clusterCIDR: %s
detectLocalMode: ClusterCIDR
clientConnection: {kubeconfig: %q}
# the limit cannot be set outside of the first network namespace
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
%s%s`, mode, nodeName, clusterCIDR, kubeconfig, pace, layout)
}

func (p *proxy) pid() int { return p.cmd.Process.Pid }

// stop asks the product to end, as a node would, and waits for it.
func (p *proxy) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("bench: stop %v: %w", p.product, err)
	}
	select {
	case <-p.cmd.Done():
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("bench: %v does not end", p.product)
	}
}

// syncs are the syncs of IPv4 so far, by the product's own word: from a Snapshot
// that is complete to the last commit.
type syncs struct {
	full, partial         int
	fullTime, partialTime time.Duration // all together
}

// syncs asks the product.
func (p *proxy) syncs(ctx context.Context) (syncs, error) {
	if p.name == figures.Portolan {
		return parseSyncs(p.log.String()), nil
	}
	m, err := p.metrics(ctx)
	if err != nil {
		return syncs{}, err
	}
	of := func(sort string) (int, time.Duration) {
		name := "kubeproxy_sync_" + sort + "_proxy_rules_duration_seconds_"
		return int(m[name+`count{ip_family="IPv4"}`]), time.Duration(m[name+`sum{ip_family="IPv4"}`] * float64(time.Second))
	}
	var s syncs
	s.full, s.fullTime = of("full")
	s.partial, s.partialTime = of("partial")
	return s, nil
}

// parseSyncs reads Portolan's log.
func parseSyncs(log string) (s syncs) {
	for line := range strings.Lines(log) {
		// Connections are looked through in full, too, and take their time.
		if !strings.Contains(line, "family=IPv4 services=") || strings.Contains(line, "level=ERROR") {
			continue
		}
		_, rest, found := strings.Cut(line, " took=")
		took, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		d, err := time.ParseDuration(took)
		switch {
		case !found || err != nil:
		case strings.Contains(line, "full=true"):
			s.full++
			s.fullTime += d
		default:
			s.partial++
			s.partialTime += d
		}
	}
	return s
}

// metrics reads what kube-proxy counts.
func (p *proxy) metrics(ctx context.Context) (map[string]float64, error) {
	client := http.Client{Transport: &http.Transport{DialContext: p.node.DialContext, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return parseMetrics(answer.Body)
}

// parseMetrics reads the Prometheus text format: series and value.
func parseMetrics(r io.Reader) (map[string]float64, error) {
	out := map[string]float64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if i := strings.LastIndexByte(lines.Text(), ' '); i > 0 && !strings.HasPrefix(lines.Text(), "#") {
			if v, err := strconv.ParseFloat(lines.Text()[i+1:], 64); err == nil {
				out[lines.Text()[:i]] = v
			}
		}
	}
	return out, lines.Err()
}
