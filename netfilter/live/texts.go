package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"portolan/netfilter"
)

// Text is what a program printed, or a file of /proc said.
type Text struct{ Name, Text string }

// Texts returns what Read reads, as it was printed, so that somebody else can
// read it elsewhere; addresses, routes, neighbours and sysctls are not among them.
// What cannot be had is an error beside the rest.
func Texts(ctx context.Context, o Options) ([]Text, error) {
	var out []Text
	var errs []error
	add := func(name string, args ...string) {
		path, ok := program(name)
		if !ok {
			errs = append(errs, fmt.Errorf("live: %s is not installed", name))
			return
		}
		text, err := run(ctx, path, args...)
		if err != nil {
			errs = append(errs, fmt.Errorf("live: %w", err))
			return
		}
		if len(bytes.TrimSpace([]byte(text))) > 0 {
			file := name
			if name == "conntrack" {
				file += "-" + args[len(args)-1]
			}
			out = append(out, Text{file + ".txt", text})
		}
	}
	for _, s := range sources {
		if s.names != "" {
			if b, err := os.ReadFile(s.names); err != nil || len(bytes.TrimSpace(b)) == 0 {
				continue // reading would make the tables
			}
		}
		add(s.program, "-c")
	}
	if tables, err := nftTables(); err != nil {
		errs = append(errs, fmt.Errorf("live: %w", err))
	} else if len(tables) > 0 {
		add("nft", "list", "ruleset")
	}
	if _, ok := program("ipset"); ok {
		add("ipset", "save")
	}
	if text, err := ipvsText(); err != nil {
		errs = append(errs, fmt.Errorf("live: %w", err))
	} else if text != "" {
		out = append(out, Text{"ipvsadm.txt", text})
	}
	if !o.NoFlows {
		add("conntrack", "-L", "-f", "ipv4")
		add("conntrack", "-L", "-f", "ipv6")
	}
	return out, errors.Join(errs...)
}

// Surroundings reads addresses, routes, rules of routing, neighbours and sysctls,
// and nothing of filters.
func Surroundings() (*netfilter.Host, error) {
	h := &netfilter.Host{Sysctls: map[string]string{}}
	if err := errors.Join(network(h), sysctls(h)); err != nil {
		return nil, fmt.Errorf("live: %w", err)
	}
	return h, nil
}
