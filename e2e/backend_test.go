package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"portolan/lab"
)

// Backend programs the rules of a node.
type Backend interface {
	Name() string
	// Start programs a node from a folder of manifests, and returns when the rules
	// are in force. What it has to say goes to log. stop ends it without removing
	// rules.
	Start(ctx context.Context, node *lab.Node, manifests string, args []string, log io.Writer) (stop func() error, err error)
}

// backends are those that every scenario runs against. PORTOLAN_E2E_BACKENDS names
// others, with commas between: not every kernel has everything.
var backends = chosen(os.Getenv("PORTOLAN_E2E_BACKENDS"), "iptables-legacy,iptables-nft,nftables")

func chosen(names, usual string) (list []portolan) {
	if names == "" {
		names = usual
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(allBackends, func(b portolan) bool { return b.name == name })
		if i < 0 {
			panic("e2e: no backend is called " + name)
		}
		list = append(list, allBackends[i])
	}
	return list
}

var allBackends = []portolan{
	{name: "iptables-legacy", mode: "iptables", variant: lab.Legacy},
	{name: "iptables-nft", mode: "iptables", variant: lab.NFT},
	{name: "nftables", mode: "nftables"},
	{name: "compact-legacy", mode: "iptables", variant: lab.Legacy, flags: compactLayout},
	{name: "compact-nft", mode: "iptables", variant: lab.NFT, flags: compactLayout},
	{name: "ipvs", mode: "ipvs", variant: lab.Legacy},
}

// portolan is the binary under test in one mode.
type portolan struct {
	name, mode string
	variant    lab.Variant
	flags      []string // that belong to the mode

	shims  string                                 // folder of programs to find before the usual ones
	around []string                               // a program that ends by running the one behind it
	before func(context.Context, *lab.Node) error // done in a node ahead of the proxy
}

func (p portolan) Name() string { return p.name }

// isStandard tells whether chains are those of kube-proxy's iptables mode.
func (p portolan) isStandard() bool { return p.mode == "iptables" && p.flags == nil }

// readyWithin bounds the first sync; it takes tenths of a second on a quiet machine,
// and minutes on an emulated one that is short of time.
const readyWithin = 5 * time.Minute

func (p portolan) Start(ctx context.Context, node *lab.Node, manifests string, args []string, log io.Writer) (func() error, error) {
	cmd, err := p.launch(ctx, node, manifests, args, log)
	if err != nil {
		return nil, err
	}
	return func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		return cmd.Wait()
	}, nil
}

// launch is Start for who wants to end it otherwise.
func (p portolan) launch(ctx context.Context, node *lab.Node, manifests string, args []string, log io.Writer) (*lab.Cmd, error) {
	if p.before != nil {
		if err := p.before(ctx, node); err != nil {
			return nil, fmt.Errorf("before the proxy of %s: %w", node.Name, err)
		}
	}
	cmd := p.command(ctx, node, append(append([]string{"proxy"}, p.sources(node, manifests)...), args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err := healthy(ctx, node, cmd)
	if err == nil {
		err = p.inForce(ctx, node)
	}
	if err != nil {
		cmd.Process.Kill()
		return nil, errors.Join(err, cmd.Wait())
	}
	return cmd, nil
}

// sources are the flags that say what is wanted.
func (p portolan) sources(node *lab.Node, manifests string) []string {
	return append([]string{
		"--manifests", manifests,
		"--hostname-override", node.Name,
		"--proxy-mode", p.mode,
		"--cluster-cidr", clusterCIDR(),
	}, p.flags...)
}

var compactLayout = []string{"--iptables-layout", "compact"}

// command prepares the binary under test inside a node.
func (p portolan) command(ctx context.Context, node *lab.Node, args ...string) *lab.Cmd {
	words := slices.Concat(p.around, []string{binary}, args)
	cmd := node.Command(ctx, p.variant, words[0], words[1:]...)
	if p.shims != "" {
		cmd.Prefer(p.shims)
	}
	return cmd
}

func clusterCIDR() string {
	var list []string
	for _, p := range lab.PodNetworks {
		list = append(list, p.String())
	}
	return strings.Join(list, ",")
}

// healthy waits until the proxy of a node says that it has synced.
func healthy(ctx context.Context, node *lab.Node, cmd *lab.Cmd) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	return node.AwaitOK(ctx, "http://127.0.0.1:10256/healthz", cmd.Done())
}

// inForce makes sure that the rules are in the variant that the test is about.
func (p portolan) inForce(ctx context.Context, node *lab.Node) error {
	if p.mode != "iptables" {
		return nil
	}
	rules, err := save(ctx, node, p.variant, "iptables-save")
	if err == nil && !strings.Contains(rules, "KUBE-SERVICES") {
		err = fmt.Errorf("no KUBE-SERVICES in iptables of variant %s", p.variant)
	}
	return err
}

// save lists the rules of a node, without counters.
func save(ctx context.Context, node *lab.Node, v lab.Variant, program string) (string, error) {
	out, err := node.Command(ctx, v, program).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s in %s: %w: %s", program, node.Name, err, out)
	}
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, ":"): // :CHAIN POLICY [PACKETS:BYTES]
			line, _, _ = strings.Cut(line, " [")
			fmt.Fprintln(&b, line)
		default:
			b.WriteString(line)
		}
	}
	return b.String(), nil
}

// writeManifests puts the files of a scenario into a folder.
func writeManifests(dir string, files map[string][]byte) error {
	for name, data := range files {
		// A reader sees the old file or the new one: write beside it, then rename.
		part := dir + "/." + name + ".part"
		if err := os.WriteFile(part, data, 0o644); err != nil {
			return err
		}
		if err := os.Rename(part, dir+"/"+name); err != nil {
			return err
		}
	}
	return nil
}
