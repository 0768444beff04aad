package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is the release, set when it is built.
var version = "v0.1.0-dev"

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, and which iptables and proxy mode this host uses",
		Example: "  portolan version",
		Args:    takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			lines := append([]string{versionLine()}, describeTools(cmd.Context())...)
			mode := "only root can tell" // nobody else can see the rules
			if os.Geteuid() == 0 {
				chosen, reason := chooseMode(cmd.Context())
				mode = fmt.Sprintf("%s: %s", chosen, reason)
			}
			lines = append(lines, "proxy mode unless one is asked for: "+mode)
			_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(lines, "\n"))
			return err
		},
	}
}

func versionLine() string {
	return fmt.Sprintf("portolan %s (commit %s, %s, %s/%s)", version, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// printVersion does what kube-proxy's --version asks for: true or raw print it and
// are done, a version such as v1.37.0 is what is reported from now on.
func printVersion(out io.Writer, asked string) (done bool, err error) {
	if strings.HasPrefix(asked, "v") {
		version = asked
		return false, nil
	}
	switch asked {
	case "false":
		return false, nil
	case "true":
		_, err = fmt.Fprintln(out, "portolan", version)
		return true, err
	case "raw":
		_, err = fmt.Fprintln(out, versionLine())
		return true, err
	}
	return false, fmt.Errorf("flag --version: %q is not true, false, raw or a version", asked)
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
