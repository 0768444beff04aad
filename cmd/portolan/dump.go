package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portolan/netfilter/hostfile"
	"portolan/netfilter/live"
)

type dumpFlags struct {
	noFlows         bool
	metrics, health string
}

func newDumpCommand() *cobra.Command {
	f := dumpFlags{}
	cmd := &cobra.Command{
		Use:   "dump FOLDER",
		Short: "Write what this node holds to a new folder, for trace, verify and support",
		Long: `Writes the rules of both iptables variants, nft's, ipsets, IPVS, connections,
addresses, routes, neighbours and the sysctls that matter to FOLDER, which "trace
--rules" and "verify --rules" take, and what the proxy says of itself (failures,
health, configuration without secrets, metrics) to FOLDER/proxy. It changes nothing.
Needs root to read rules. Look at it before you give it away: addresses and names of
Services are in it.

Exit codes: 0 all is there, 1 something is missing (said on stderr and in
FOLDER/proxy/missing.txt), 2 the folder could not be made.`,
		Example: `  portolan dump /tmp/node-1
  portolan trace --rules /tmp/node-1 --src 203.0.113.9 --dst 192.0.2.10:30080`,
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVar(&f.noFlows, "no-connections", false, "leave out connections, of which there may be hundreds of thousands")
	cmd.Flags().StringVar(&f.metrics, "metrics-url", "http://127.0.0.1:10249", "where the proxy's metrics server is; empty leaves it out")
	cmd.Flags().StringVar(&f.health, "healthz-url", "http://127.0.0.1:10256", "where the proxy's health server is; empty leaves it out")
	return cmd
}

// run writes what it can; what is missing is an error at the end.
func (f dumpFlags) run(ctx context.Context, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("dump: %w: name a folder that is not there yet", err)
	}
	proxy := filepath.Join(dir, "proxy")
	if err := os.Mkdir(proxy, 0o700); err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	texts, err := live.Texts(ctx, live.Options{NoFlows: f.noFlows})
	errs := []error{err}
	for _, t := range texts {
		errs = append(errs, writeDump(dir, t.Name, t.Text))
	}
	errs = append(errs, dumpSurroundings(dir), f.dumpProxy(ctx, proxy))
	if err := errors.Join(errs...); err != nil {
		return exitError{exitBadNews, errors.Join(err, writeDump(proxy, "missing.txt", err.Error()+"\n"))}
	}
	return nil
}

func writeDump(dir, name, text string) error {
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	return nil
}

// dumpSurroundings writes what is not rules: addresses, routes, neighbours, sysctls.
func dumpSurroundings(dir string) error {
	h, err := live.Surroundings()
	if err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	text, left, err := hostfile.Format(h)
	if err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	errs := []error{writeDump(dir, "host.yaml", text)}
	for _, what := range left {
		errs = append(errs, fmt.Errorf("dump: host.yaml has no place for %s", what))
	}
	return errors.Join(errs...)
}

// dumpProxy asks the proxy's own pages.
func (f dumpFlags) dumpProxy(ctx context.Context, dir string) error {
	client := http.Client{Timeout: 5 * time.Second}
	errs := []error{writeDump(dir, "version.txt", fmt.Sprintf("portolan %s\n", version))}
	for _, page := range []struct{ base, path, file string }{
		{f.metrics, "/debug/failures", "failures.json"},
		{f.metrics, "/configz", "configuration.json"},
		{f.metrics, "/proxyMode", "mode.txt"},
		{f.metrics, "/metrics", "metrics.txt"},
		{f.health, "/healthz?verbose", "health.txt"},
	} {
		if page.base == "" {
			continue
		}
		text, err := get(ctx, client, strings.TrimSuffix(page.base, "/")+page.path)
		if err == nil {
			err = writeDump(dir, page.file, text)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// mostOfPage bounds what a page may say, bytes.
const mostOfPage = 64 << 20

// get asks the proxy's own servers for a page.
func get(ctx context.Context, client http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("dump: %w", err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("dump: the proxy does not answer: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostOfPage))
	if err != nil {
		return "", fmt.Errorf("dump: %s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK && !strings.Contains(url, "/healthz") { // which says why it is not well
		return "", fmt.Errorf("dump: %s: %s", url, answer.Status)
	}
	return string(text), nil
}
