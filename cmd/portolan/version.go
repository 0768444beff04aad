package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the release, set when it is built.
var version = "v0.1.0-dev"

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, and which iptables this host uses",
		Example: "  portolan version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "portolan %s (commit %s, %s, %s/%s)\n", version, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			for _, line := range describeTools(cmd.Context()) {
				fmt.Fprintln(out, line)
			}
			return nil
		},
	}
}

// commit is the revision that the Go tool recorded in the binary.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
