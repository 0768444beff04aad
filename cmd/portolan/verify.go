package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"portolan/backend/ipvs"
	"portolan/config"
	"portolan/dataplane"
	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/service"
	"portolan/source/kube"
	"portolan/source/manifests"
	"portolan/trace"
	"portolan/verify"
)

// verifyFlags are the flags of verify as they were given.
type verifyFlags struct {
	config *config.Flags
	host   hostFlags
	output string
	all    bool
	// compare is the first of two things to compare, "" to verify one host.
	compare string
}

func newVerifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify [flags]",
		Short: "Check rules against Services and the host's set-up; list findings with cause and fix",
		Long: `Verify follows a packet of every kind of client (a pod, the node itself, somebody
outside, an endpoint that calls itself) to every address of every Service,
through the rules that are there, whoever wrote them, and holds what becomes of
it against what the Service asks for. It also looks at what Services need of the
host. Services come from --manifests or an API server; rules from the live kernel
of this network namespace, or from --rules and --host as in "portolan trace".

What a finding's code means and what to do is in docs/findings.md.

--compare A B follows the same packets through two sets of rules and tells for each
Service what becomes otherwise for whom, and why: before an upgrade, or a move to
another mode. A and B are dumps (a file or folder, as --rules takes), "kernel" for
this host, or "plan:MODE" for what the proxy would write in that mode on the host of
the other side.

Exit codes: 0 no finding of severity error, 1 there are some, 2 it could not
check. With --compare: 0 nothing changes, 1 something does, 2 it could not compare, or
what may change cannot be told.`,
		Example: `  portolan verify --kubeconfig /etc/kubernetes/kubelet.conf --cluster-cidr 10.244.0.0/16
  portolan verify --rules node.dump --host node.yaml --manifests services.yaml --hostname-override node-1 --all
  portolan verify --compare node-1.dump plan:nftables --manifests services.yaml --hostname-override node-1`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case f.compare != "" && len(args) != 1:
				return errors.New("verify: --compare takes two things: --compare A B")
			case f.compare == "" && len(args) > 0:
				return fmt.Errorf("verify: unexpected argument %q", args[0])
			}
			return nil
		},
	}
	f.config = addLiveFlags(cmd)
	f.host.add(cmd.Flags())
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&f.all, "all", false, "also print every frontend with what becomes of each kind of client")
	cmd.Flags().StringVar(&f.compare, "compare", "", "compare two sets of rules: --compare `A` B, each a dump, kernel, or plan:MODE")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.output != "text" && f.output != "json" {
			return fmt.Errorf("verify: -o %s is neither text nor json", f.output)
		}
		if f.compare != "" {
			return runCompare(cmd, f, args)
		}
		return runVerify(cmd, f)
	}
	return cmd
}

// runVerify reads rules and Services, and prints what is wrong.
func runVerify(cmd *cobra.Command, f verifyFlags) error {
	c, err := configured(cmd, f.config)
	if err != nil {
		return err
	}
	host, err := f.host.read(cmd.Context())
	if err != nil {
		return err
	}
	services, nodes, err := clusterOf(cmd, c, host, len(f.host.rules) > 0)
	if err != nil {
		return err
	}
	tracer := trace.New(host, trace.Options{Reply: true, Names: chainNames(services)})
	in := verify.Input{Tracer: tracer, Services: services, Nodes: nodes, Mark: 1 << c.MasqueradeBit}
	if in.Drift, err = driftOf(cmd.Context(), c, services, host, f.host.rules); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: rules were not compared line by line:", err)
	}
	report := verify.Verify(in)
	report.Assumptions = append(report.Assumptions, host.Warnings...)
	if err := printReport(cmd.OutOrStdout(), tracer, report, f); err != nil {
		return fmt.Errorf("verify: writing the findings: %w", err)
	}
	return verifyExit(report)
}

// verifyExit is bad news when something is broken, and cannot tell when nothing
// is known to be, but something was not understood.
func verifyExit(r verify.Report) error {
	if worst, ok := r.Worst(); ok && worst == verify.Error {
		return exitError{code: exitBadNews}
	}
	for _, f := range r.Findings {
		if f.Code == verify.CannotTell {
			return exitError{code: exitCannotTell}
		}
	}
	return nil
}

// clusterOf reads what the cluster asks of the host, once, and its Nodes. The Node
// of a dump is that which has an address of it, unless a name is given.
func clusterOf(cmd *cobra.Command, c config.Config, host *netfilter.Host, dump bool) (*service.Snapshot, []verify.Node, error) {
	settings, err := nodeSettings(c)
	if err != nil {
		return nil, nil, err
	}
	settings.NodePorts.Local = addressesOf(host)
	settings.NodePorts.Localhost = settings.NodePorts.AllowsLocalhost()
	peers, err := peersOf(cmd.Context(), c)
	if err != nil {
		return nil, nil, err
	}
	if c.Hostname == "" && dump {
		settings.NodeName = nameByAddress(peers, settings)
	}
	nodes := make([]verify.Node, 0, len(peers))
	for _, p := range peers {
		nodes = append(nodes, verify.Node{Name: p.Name, IPs: p.IPs, Pods: p.PodCIDRs})
	}
	if len(c.Options.Manifests) > 0 {
		snapshot, refused := loadManifests(cmd.Context(), c, settings, cmd.ErrOrStderr())
		if refused {
			return nil, nil, errors.New("verify: what was refused may be what a rule is for")
		}
		return snapshot, nodes, nil
	}
	snapshot, err := snapshotOnce(cmd.Context(), c, settings)
	return snapshot, nodes, err
}

// peersOf reads the Nodes of the cluster, from manifests or the API server. What is
// wrong with other documents is said when Services are read.
func peersOf(ctx context.Context, c config.Config) ([]kube.Peer, error) {
	if len(c.Options.Manifests) > 0 {
		cluster := kube.NewCluster(kube.Settings{})
		manifests.New(c.Options.Manifests, cluster).Load(ctx)
		return cluster.Peers(), nil
	}
	client, err := connect(c)
	if err != nil {
		return nil, err
	}
	return client.Peers(ctx)
}

// nameByAddress finds the Node that has an address of the host; else the name stays
// what it was.
func nameByAddress(peers []kube.Peer, s kube.Settings) string {
	for _, p := range peers {
		for _, a := range p.IPs {
			if slices.Contains(s.NodePorts.Local, a) {
				return p.Name
			}
		}
	}
	return s.NodeName
}

// snapshotOnce follows an API server until everything is known once.
func snapshotOnce(ctx context.Context, c config.Config, settings kube.Settings) (*service.Snapshot, error) {
	source, err := newInput(c, kube.NewCluster(settings), settings.NodeName, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var first *service.Snapshot
	err = source.follow(ctx, nil, func(s *service.Snapshot) {
		if first == nil {
			first = s
			stop()
		}
	})
	if first != nil {
		return first, nil
	}
	return nil, err
}

// addressesOf are the addresses of a host's interfaces, but for those of Services that
// ipvs mode puts on one of its own (see localAddresses).
func addressesOf(h *netfilter.Host) (out []netip.Addr) {
	for _, in := range h.Interfaces {
		if in.Name == ipvs.DeviceName {
			continue
		}
		for _, a := range in.Addresses {
			out = append(out, a.Prefix.Addr())
		}
	}
	return out
}

// driftOf compares line by line, where the rules are Portolan's: those of the live
// kernel, or in a dump those of iptables-save or nft.
func driftOf(ctx context.Context, c config.Config, s *service.Snapshot, host *netfilter.Host, rules []string) ([]dataplane.Plan, error) {
	mode := config.Mode(verify.OwnMode(host))
	if mode == "" {
		return nil, nil
	}
	c, err := c.WithMode(mode)
	if err != nil {
		return nil, err
	}
	c.Options.IPTables.Layout = config.Standard
	if verify.CompactLayout(host) {
		c.Options.IPTables.Layout = config.Compact
	}
	var list []difference
	switch {
	case len(rules) == 0:
		list, err = wanted{c, s, bothFamilies}.compare(ctx, "kernel")
	case mode == config.NFTables:
		list, err = wanted{c, s, listedFamilies(host)}.compareListing(host)
	case mode == config.IPTables:
		var texts map[service.Family]string
		if texts, err = savedRules(rules); err == nil {
			list, err = wanted{c, s, bothFamilies}.compareTexts(ctx, texts)
		}
	}
	plans := make([]dataplane.Plan, 0, len(list))
	for _, d := range list {
		plans = append(plans, d.plan)
	}
	return plans, err
}

// savedRules are the iptables-save texts of a dump, by family. Of several variants
// the one with Service rules is taken.
func savedRules(paths []string) (map[service.Family]string, error) {
	texts, err := detect.Read(paths...)
	if err != nil {
		return nil, err
	}
	out := map[service.Family]string{}
	for _, t := range texts {
		if detect.KindOf(t.Text) != detect.Save || !strings.Contains(t.Text, "*nat") || !strings.Contains(t.Text, ":KUBE-SERVICES ") {
			continue
		}
		family := service.IPv4
		if strings.Contains(t.Text, "Generated by ip6tables") {
			family = service.IPv6
		}
		out[family] = t.Text
	}
	return out, nil
}
