package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"portolan/agent"
	"portolan/backend/nftables"
	"portolan/config"
	"portolan/dataplane"
	"portolan/kernel/nft"
	"portolan/metrics"
	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/service"
	"portolan/verify"
)

// tableFamilies pairs the families of the model with those of tables.
var tableFamilies = []struct {
	model  service.Family
	kernel nft.Family
}{{service.IPv4, nft.IPv4}, {service.IPv6, nft.IPv6}}

// kubeProxyTable is kube-proxy's own table in its nftables mode.
const kubeProxyTable = "kube-proxy"

// newTables returns a backend for each IP family whose tables this kernel takes, and
// what reads its counters. It fails when there is none, and says what is missing. trouble
// hears of removals that failed.
func newTables(c config.Config, log *slog.Logger, trouble func(service.Family, error)) (out []agent.Family, dropped map[service.Family]metrics.ReadDropped, err error) {
	dropped = map[service.Family]metrics.ReadDropped{}
	var errs []error
	first := &nftables.FirstWrites{}
	for _, f := range tableFamilies {
		b, err := newTable(c, f.model, first, log, trouble)
		if err != nil {
			errs = append(errs, err)
			log.Warn("an IP family is left out", "family", f.model, "error", err)
			continue
		}
		log.Info("nftables", "family", f.model, "table", f.kernel.String()+" "+nftables.TableName)
		out, dropped[f.model] = append(out, agent.Family{Family: f.model, Backend: b}), b.Dropped
	}
	if len(out) == 0 {
		return nil, nil, fmt.Errorf("no IP family can be programmed: %w", errors.Join(errs...))
	}
	return out, dropped, nil
}

// newTable is newTables for one family.
func newTable(c config.Config, f service.Family, first *nftables.FirstWrites, log *slog.Logger, trouble func(service.Family, error)) (*nftables.Backend, error) {
	if f == service.IPv6 {
		if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
			return nil, errors.New("this host has no IPv6")
		}
	}
	conn, err := nft.Dial()
	if err != nil {
		return nil, err
	}
	b := nftables.New(nftables.Options{
		Family:        f,
		MasqueradeBit: c.MasqueradeBit,
		LiberalTCP:    c.Conntrack.TCPBeLiberal || liberalTCP(),
		Conn:          conn,
		First:         first,
		Trouble:       func(err error) { trouble(f, err) },
		Deaf:          func(err error) { log.Error("what others do to the rules is noticed late", "family", f, "error", err) },
	})
	if err := b.Probe(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return b, nil
}

// compareTables returns what differs between what is wanted and our tables in the kernel,
// or in a file.
func (w wanted) compareTables(ctx context.Context, against string) ([]difference, error) {
	if against != "kernel" {
		texts, err := detect.Read(against)
		if err != nil {
			return nil, fmt.Errorf("flag --against: %w", err)
		}
		host, err := detect.Host(detect.Options{}, texts...)
		if err != nil {
			return nil, fmt.Errorf("flag --against: %w", err)
		}
		if !slices.ContainsFunc(host.Tables, func(t *netfilter.Table) bool { return t.Variant == netfilter.Native }) {
			return nil, fmt.Errorf("flag --against: %s has no table of nft: give it the output of nft list ruleset", against)
		}
		return w.compareListing(host)
	}
	var out []difference
	for _, f := range w.families {
		plan, err := compareTable(ctx, nftables.Options{Family: f, MasqueradeBit: w.config.MasqueradeBit, LiberalTCP: liberalTCP()}, w.services)
		if err != nil {
			return nil, err
		}
		out = append(out, difference{f, plan})
	}
	return out, nil
}

// compareListing returns what differs between what is wanted and our tables in a
// listing. Where the host lets odd TCP packets pass, so does the plan.
func (w wanted) compareListing(host *netfilter.Host) ([]difference, error) {
	if host.Sysctls["net.netfilter.nf_conntrack_tcp_be_liberal"] == "1" {
		w.config.Conntrack.TCPBeLiberal = true
	}
	p, err := w.plan()
	if err != nil {
		return nil, err
	}
	var out []difference
	for _, f := range p {
		plan, err := detect.Host(detect.Options{}, detect.Text{Name: "plan", Text: f.text})
		if err != nil {
			return nil, fmt.Errorf("reading the plan: %w", err)
		}
		for _, want := range plan.Tables {
			have := host.Table(netfilter.Family(f.family), netfilter.Native, want.Name)
			out = append(out, difference{f.family, verify.TableDiff(want, have)})
		}
	}
	return out, nil
}

// listedFamilies are those with a table of ours in a listing: a node may have one only.
func listedFamilies(host *netfilter.Host) (out []service.Family) {
	for _, f := range tableFamilies {
		if host.Table(netfilter.Family(f.model), netfilter.Native, f.kernel.String()+" "+nftables.TableName) != nil {
			out = append(out, f.model)
		}
	}
	return out
}

// compareTable is compareTables for one family in the kernel.
func compareTable(ctx context.Context, o nftables.Options, s *service.Snapshot) (dataplane.Plan, error) {
	conn, err := nft.Dial()
	if err != nil {
		return dataplane.Plan{}, err
	}
	defer conn.Close()
	o.Conn = conn
	b := nftables.New(o)
	sync := dataplane.NewSync(b)
	if _, err := renderAll(b, sync, s); err != nil {
		return dataplane.Plan{}, err
	}
	return sync.Diff(ctx)
}

// cleanupTables removes the named tables of both families and says which.
func cleanupTables(ctx context.Context, dryRun bool, out io.Writer, names ...string) error {
	conn, err := nft.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, f := range tableFamilies {
		removed, err := nftables.Cleanup(ctx, conn, f.kernel, names, dryRun)
		for _, line := range removed {
			fmt.Fprintf(out, "%s nftables: %s\n", f.model, line)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
