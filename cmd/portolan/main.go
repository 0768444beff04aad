package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := os.Setenv("PATH", withRootsPrograms(os.Getenv("PATH"))); err != nil {
		fmt.Fprintln(os.Stderr, "portolan:", err)
		os.Exit(exitCannotTell)
	}
	os.Exit(run(ctx, os.Args))
}

// withRootsPrograms adds the folders where iptables and its kind are to a PATH that
// lacks them: that of plain su on Debian and of cron does.
func withRootsPrograms(path string) string {
	folders := filepath.SplitList(path)
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if !slices.Contains(folders, dir) {
			folders = append(folders, dir)
		}
	}
	return strings.Join(folders, string(filepath.ListSeparator))
}

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string) int {
	root := newRootCommand()
	if filepath.Base(args[0]) == "kube-proxy" {
		root = newProxyCommand()
		root.Use = strings.Replace(root.Use, "proxy", "kube-proxy", 1)
	}
	root.SetArgs(args[1:])
	root.SilenceErrors, root.SilenceUsage = true, true
	err := root.ExecuteContext(ctx)
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintln(os.Stderr, "portolan:", exit.err)
		}
		return exit.code
	}
	fmt.Fprintln(os.Stderr, "portolan:", err)
	return exitCannotTell
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "portolan",
		Short: "A Kubernetes Service proxy that can explain itself",
		Long: `Portolan makes ClusterIP, NodePort, LoadBalancer and externalIP traffic reach
the right pods. It is a drop-in for kube-proxy, and it can say what it will do
and what the kernel does with a packet.

Exit codes: 0 done, 1 the answer is bad news (each command says what that is),
2 usage, or it cannot tell.`,
	}
	root.Version = version
	root.SetVersionTemplate("portolan {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newProxyCommand(), newPlanCommand(), newTraceCommand(), newVerifyCommand(), newDumpCommand(), newPodnetCommand(), newLabCommand(), newCleanupCommand(), newTopCommand(), newRebalanceCommand(), newVersionCommand())
	return root
}

// anyNumber of arguments is the most that takes can be told.
const anyNumber = math.MaxInt

// takes is for commands whose usage names what their arguments are.
func takes(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("arguments %q are not those of %q: see %s --help", args, cmd.UseLine(), cmd.CommandPath())
		}
		return nil
	}
}
