package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/spf13/cobra"

	"portolan/config"
	"portolan/netfilter"
	"portolan/service"
	"portolan/source/kube"
	"portolan/trace"
	"portolan/verify"
)

// verifyFlags are the flags of verify as they were given.
type verifyFlags struct {
	config *config.Flags
	host   hostFlags
	output string
	all    bool
}

func newVerifyCommand() *cobra.Command {
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

Exit codes: 0 no finding of severity error, 1 there are some, 2 it could not
check.`,
		Example: `  portolan verify --kubeconfig /etc/kubernetes/kubelet.conf --cluster-cidr 10.244.0.0/16
  portolan verify --rules node.dump --host node.yaml --manifests services.yaml --hostname-override node-1 --all`,
		Args: cobra.NoArgs,
	}
	f := verifyFlags{config: addPlanFlags(cmd)}
	for _, name := range []string{"kubeconfig", "master"} {
		cmd.Flags().Lookup(name).Hidden = false
	}
	f.host.add(cmd.Flags())
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&f.all, "all", false, "also print every frontend with what becomes of each kind of client")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runVerify(cmd, f) }
	return cmd
}

func runVerify(cmd *cobra.Command, f verifyFlags) error {
	if f.output != "text" && f.output != "json" {
		return fmt.Errorf("verify: -o %s is neither text nor json", f.output)
	}
	c, warnings, err := f.config.Config(true)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
	}
	host, err := f.host.read(cmd.Context())
	if err != nil {
		return err
	}
	services, err := servicesOf(cmd, c, host)
	if err != nil {
		return err
	}
	tracer := trace.New(host, trace.Options{Reply: true, Names: chainNames(services)})
	report := verify.Verify(verify.Input{Tracer: tracer, Services: services})
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

// servicesOf reads what the cluster asks of the host, once.
func servicesOf(cmd *cobra.Command, c config.Config, host *netfilter.Host) (*service.Snapshot, error) {
	settings, err := nodeSettings(c)
	if err != nil {
		return nil, err
	}
	settings.NodePorts.Local = addressesOf(host)
	settings.NodePorts.Localhost = settings.NodePorts.AllowsLocalhost()
	if len(c.Options.Manifests) > 0 {
		snapshot, refused := loadManifests(cmd.Context(), c.Options.Manifests, settings, cmd.ErrOrStderr())
		if refused {
			return nil, errors.New("verify: what was refused may be what a rule is for")
		}
		return snapshot, nil
	}
	return snapshotOnce(cmd.Context(), c, settings, slog.New(slog.DiscardHandler))
}

// snapshotOnce follows an API server until everything is known once.
func snapshotOnce(ctx context.Context, c config.Config, settings kube.Settings, log *slog.Logger) (*service.Snapshot, error) {
	source, err := newInput(c, kube.NewCluster(settings), settings.NodeName, log)
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

// addressesOf are the addresses of a host's interfaces.
func addressesOf(h *netfilter.Host) (out []netip.Addr) {
	for _, in := range h.Interfaces {
		for _, a := range in.Addresses {
			out = append(out, a.Prefix.Addr())
		}
	}
	return out
}
