package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"portolan/config"
)

// proxyFlags say what the proxy does, beside what its configuration says.
type proxyFlags struct {
	config            *config.Flags
	writeTo           string
	initOnly, cleanup bool
	version           string
}

func newProxyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Program Services on this node, and keep them so",
		Long: `Watches Services, EndpointSlices and Nodes, and has the kernel of this node
answer for them. Rules stay in place when it ends: the next start adopts them.
Needs root. Takes the flags and the configuration file of kube-proxy 1.37, and in
that file a second document of apiVersion portolan.io/v1alpha1 and kind
ProxyOptions for what kube-proxy does not have.

Exit codes: 0 done, or ended by a signal; 1 anything else, as kube-proxy.`,
		Example: `  portolan proxy --manifests /etc/portolan --cluster-cidr 10.244.0.0/16
  portolan proxy --config /var/lib/kube-proxy/config.conf --hostname-override node-1 --manifests /etc/portolan
  portolan proxy --proxy-mode iptables --iptables-layout compact --cluster-cidr 10.244.0.0/16
  portolan proxy --proxy-mode nftables --write-config-to config.yaml`,
		Args: func(cmd *cobra.Command, args []string) error { return badNews(takes(0, 0)(cmd, args)) },
	}
	f := addProxyFlags(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badNews(err) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return badNews(f.run(cmd)) }
	return cmd
}

func addProxyFlags(cmd *cobra.Command) *proxyFlags {
	set := cmd.Flags()
	f := &proxyFlags{config: config.AddFlags(set)}
	set.StringVar(&f.writeTo, "write-config-to", "", "write the configuration, checked and with its defaults, to this file, and end")
	set.BoolVar(&f.initOnly, "init-only", false, "only set what needs privileges of the kernel (sysctls), and end")
	set.BoolVar(&f.cleanup, "cleanup", false, "remove the rules of every mode, and end")
	set.StringVar(&f.version, "version", "false", "print the version, and end; raw prints more of it")
	set.Lookup("version").NoOptDefVal = "true"
	return f
}

// badNews is kube-proxy's exit code for every error.
func badNews(err error) error {
	if err == nil {
		return nil
	}
	return exitError{exitBadNews, err}
}

// run does what the flags ask for: print, clean up, set up, or run until a signal.
func (f *proxyFlags) run(cmd *cobra.Command) error {
	if done, err := printVersion(cmd.OutOrStdout(), f.version); done || err != nil {
		return err
	}
	c, warnings, err := f.config.Config(config.FileFirst)
	if err != nil {
		return err
	}
	log, setVerbosity, err := newLog(c.Logging, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	for _, w := range warnings {
		log.Warn("configuration", "warning", w)
	}
	switch {
	case f.writeTo != "":
		return writeConfig(c, f.writeTo, log)
	case f.cleanup:
		return cleanup(cmd.Context(), false, cmd.OutOrStdout())
	case os.Geteuid() != 0:
		return errors.New("proxy: to program the kernel needs root")
	}
	if c, err = settleMode(cmd.Context(), c, log); err != nil {
		return err
	}
	if f.initOnly {
		if c.LocalhostNodePorts {
			allowLocalhostNodePorts(log)
		}
		setUpConntrack(c, log)
		return setUpIPVS(c, log)
	}
	settings, err := nodeSettings(c)
	if err != nil {
		return err
	}
	pages := pagesOf(c, cmd.Flags())
	pages.SetVerbosity = setVerbosity
	return runProxy(cmd.Context(), c, settings, pages, log)
}

// settleMode chooses a mode where none is asked for.
func settleMode(ctx context.Context, c config.Config, log *slog.Logger) (config.Config, error) {
	if c.Mode != config.Auto {
		log.Info("proxy mode", "mode", string(c.Mode), "reason", "it was asked for")
		return c, nil
	}
	mode, reason := chooseMode(ctx)
	log.Info("proxy mode", "mode", string(mode), "reason", reason)
	return c.WithMode(mode)
}

func writeConfig(c config.Config, path string, log *slog.Logger) error {
	text, err := c.YAML()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("flag --write-config-to: %w", err)
	}
	log.Info("configuration written", "file", path)
	return nil
}
