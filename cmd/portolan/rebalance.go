package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portolan/config"
	"portolan/conntrack"
	kernel "portolan/kernel/conntrack"
	"portolan/service"
)

// rebalanceFlags are the flags of rebalance as they were given.
type rebalanceFlags struct {
	config   *config.Flags
	fraction float64
	rate     rateFlag
	dryRun   bool
}

func newRebalanceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebalance --max-fraction F [flags] NAMESPACE/SERVICE",
		Short: "Move long TCP connections away from overloaded endpoints of a Service",
		Long: `Rebalance has the kernel of this node forget some of the TCP connections of
endpoints that carry more than their share. With the next packet of its client such
a connection is balanced anew: it goes on unbroken if the same endpoint is chosen;
another endpoint resets it, and its client has to connect again.

It first prints what that will cost: at most how many connections are reset, and how
many probably. It ends when no endpoint carries too many, when the fraction is used
up, or with Ctrl-C. There is no default for the fraction: of the connections of an
overloaded endpoint, at most that part is reset.

Connections whose clients only listen are better left alone: see docs/top.md. Needs
root, and net.netfilter.nf_conntrack_tcp_loose=1. Services come from --manifests or
an API server, as for "portolan proxy".

Exit codes: 0 done, or nothing to do; 1 it would do no good, for the reason given;
2 usage, or it cannot tell.`,
		Example: `  portolan rebalance --max-fraction 0.2 --dry-run --kubeconfig /etc/kubernetes/kubelet.conf default/web
  portolan rebalance --max-fraction 0.2 --rate 5/s --manifests /etc/portolan default/web`,
		Args: takes(1, 1),
	}
	f := rebalanceFlags{config: addLiveFlags(cmd), rate: 10}
	cmd.Flags().Float64Var(&f.fraction, "max-fraction", 0, "of the connections of an overloaded endpoint, the part that may be reset; above 0, up to 1; must be given")
	cmd.Flags().Var(&f.rate, "rate", "most connections to shed, all endpoints together")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print what it would cost, and end")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return runRebalance(cmd, f, args[0]) }
	return cmd
}

// rateFlag is connections a second, written N/s.
type rateFlag float64

func (r *rateFlag) Set(text string) error {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
	if err != nil || n <= 0 || math.IsInf(n, 0) {
		return fmt.Errorf("%q is not a number above 0 and \"/s\"", text)
	}
	*r = rateFlag(n)
	return nil
}

func (r *rateFlag) String() string { return strconv.FormatFloat(float64(*r), 'g', -1, 64) + "/s" }

// Type is what the help shows.
func (r *rateFlag) Type() string { return "N/s" }

// runRebalance prints what would be cut and, unless that is all that is asked for, does it.
func runRebalance(cmd *cobra.Command, f rebalanceFlags, text string) error {
	name, err := parseServiceName(text)
	switch {
	case err != nil:
		return fmt.Errorf("rebalance: %w", err)
	case !cmd.Flags().Changed("max-fraction"):
		return errors.New("rebalance: --max-fraction is not given: it says which part of the connections of an overloaded endpoint may be reset, for example 0.2, and has no default")
	case !(f.fraction > 0 && f.fraction <= 1):
		return fmt.Errorf("rebalance: --max-fraction %v is not above 0 and at most 1", f.fraction)
	case os.Geteuid() != 0:
		return errors.New("rebalance: to change the connections of the kernel needs root")
	}
	n, err := followNode(cmd, f.config)
	if err != nil {
		return err
	}
	defer n.stop()
	svc := n.newest.Load().Service(name)
	if err := worthwhile(name, svc); err != nil {
		return exitError{exitBadNews, fmt.Errorf("rebalance: %w", err)}
	}
	plans, err := n.plans(svc, f.fraction)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	for _, p := range plans {
		printRebalancePlan(out, p, float64(f.rate))
	}
	if len(plans) == 0 {
		fmt.Fprintf(out, "%s has no TCP connections through this node\n", name)
	}
	if f.dryRun {
		return nil
	}
	for _, p := range plans {
		if err := n.rebalance(out, svc, p, float64(f.rate)); err != nil {
			return err
		}
	}
	return nil
}

// worthwhile tells why shedding connections would do no good.
func worthwhile(name service.Name, svc *service.Service) error {
	if svc == nil {
		return fmt.Errorf("there is no Service %s that this node answers for", name)
	}
	tcp := false
	for _, p := range svc.Ports {
		tcp = tcp || p.Protocol == service.TCP
	}
	loose, err := host.Read(looseTCP)
	switch {
	case !tcp:
		return fmt.Errorf("%s has no TCP port; flows of other protocols would move without a word to their clients", name)
	case svc.AffinityTimeout > 0:
		return fmt.Errorf("%s has session affinity: connections come back to the endpoint that they had", name)
	case err != nil:
		return fmt.Errorf("whether the kernel takes up connections in the middle is not known: %w", err)
	case loose == 0:
		return fmt.Errorf("/%s is 0: a connection that the kernel forgot would hang instead of being balanced anew; set it to 1", looseTCP)
	}
	return nil
}

// plans returns what can be done about each TCP port that has connections.
func (n *liveNode) plans(svc *service.Service, fraction float64) (out []conntrack.Plan, err error) {
	local, err := localAddresses()
	if err != nil {
		return nil, err
	}
	for _, family := range []service.Family{service.IPv4, service.IPv6} {
		count := conntrack.NewCount(n.newest.Load(), family, local)
		for flow, err := range n.table.Flows(n.ctx, kernel.Filter{IPv6: family == service.IPv6, Proto: kernel.TCP}) {
			if err != nil {
				return nil, err
			}
			count.Add(flow)
		}
		for _, l := range count.Loads() {
			if l.Name.Service == svc.Name && l.Protocol == service.TCP {
				out = append(out, conntrack.PlanRebalance(l, fraction))
			}
		}
	}
	return out, nil
}

// printRebalancePlan says what would be cut, and why.
func printRebalancePlan(w io.Writer, p conntrack.Plan, rate float64) {
	l := p.Load
	fmt.Fprintf(w, "%s, port %d, %s: %d connections, skew %.0f%%\n", l.Name, l.Port, l.Family, l.Live, 100*l.Skew())
	if len(p.Sheds) == 0 {
		fmt.Fprintln(w, "  no endpoint carries too many: nothing to do")
		return
	}
	for _, s := range p.Sheds {
		fmt.Fprintf(w, "  %v carries %d, its share is %.1f: at most %d are reset, probably %.0f\n", s.Endpoint, s.Live, s.Expected, s.MostResets, math.Ceil(s.Resets))
	}
	if p.MostResets() == 0 {
		fmt.Fprintln(w, "  the fraction allows no connection to be reset: nothing to do")
		return
	}
	fmt.Fprintf(w, "  cost: at most %d connections are reset once and have to connect again, probably %.0f, in at least %v\n", p.MostResets(), math.Ceil(p.Resets()), p.Takes(rate).Round(100*time.Millisecond))
	fmt.Fprintf(w, "  then the skew is probably %.0f%%\n", 100*p.SkewAfter())
}

// rebalance carries out a plan and tells how it goes.
func (n *liveNode) rebalance(w io.Writer, svc *service.Service, p conntrack.Plan, rate float64) error {
	if p.MostResets() == 0 {
		return nil
	}
	local, err := localAddresses()
	if err != nil {
		return err
	}
	tell := func(what string, g conntrack.Progress) {
		fmt.Fprintf(w, "%s: %d shed, %d reset, %d unbroken, %d not heard of since; skew %.0f%%\n", what, g.Shed, g.Resets, g.Unbroken, g.Silent, 100*g.Load.Skew())
	}
	listener, err := kernel.Listen()
	if err != nil {
		return err
	}
	shed := 0
	end, err := conntrack.Rebalance{
		Snapshot: n.newest.Load(), Service: svc, Plan: p, Rate: rate, Table: n.table, Begins: listener, Local: local,
		Told: func(g conntrack.Progress) {
			if g.Shed > shed {
				tell("  so far", g)
			}
			shed = g.Shed
		},
	}.Run(n.ctx)
	tell(p.Load.Name.String()+" done", end)
	if end.Silent > 0 {
		fmt.Fprintln(w, "  those that were not heard of are balanced with the next packet of their client")
	}
	return err
}
