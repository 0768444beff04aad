package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portolan/config"
)

// flagsOfRules are kube-proxy's flags that change what is programmed, with our own
// about the input.
var flagsOfRules = []string{
	"config", "strict-config", "manifests", "node-ip",
	"proxy-mode", "hostname-override", "bind-address", "cluster-cidr", "detect-local-mode", "pod-bridge-interface",
	"pod-interface-name-prefix", "nodeport-addresses", "masquerade-all", "iptables-masquerade-bit", "iptables-localhost-nodeports", "iptables-layout",
}

// addPlanFlags defines all flags of the configuration, so that a command line of
// the proxy can be tried as it is. Those without influence are not in the help.
func addPlanFlags(cmd *cobra.Command) *config.Flags {
	flags := config.AddFlags(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(flagsOfRules, f.Name) })
	return flags
}

// configured is the configuration of the flags, which stand above the file; its warnings
// are printed.
func configured(cmd *cobra.Command, flags *config.Flags) (config.Config, error) {
	c, warnings, err := flags.Config(config.FlagsFirst)
	for _, w := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
	}
	return c, err
}
