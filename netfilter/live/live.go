// Package live reads the current network namespace into a netfilter.Host: the
// rules of both iptables variants by running their save programs, those of nft
// by nft, addresses, routes, rules, neighbours and virtual servers by netlink, sysctls and
// sockets from /proc, sets and connections by `ipset` and `conntrack` where they are
// installed. It changes nothing: no table is created by looking.
package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"portolan/netfilter"
	"portolan/netfilter/conntracklist"
	"portolan/netfilter/ipsetsave"
	"portolan/netfilter/iptsave"
	"portolan/netfilter/ipvssave"
)

// Options say what to leave out.
type Options struct {
	NoFlows bool // do not list connections: there may be hundreds of thousands
}

// Read reads everything. What a host does not have (a variant, a program) is
// left out with a warning in the Host; a program that fails is an error, since
// an answer without its rules would be wrong.
func Read(ctx context.Context, o Options) (*netfilter.Host, error) {
	h := &netfilter.Host{Sysctls: map[string]string{}}
	errs := []error{rules(ctx, h), nftables(ctx, h), network(h), sysctls(h), sets(ctx, h), servers(h), sockets(h), counts(h)}
	if !o.NoFlows {
		errs = append(errs, flows(ctx, h))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("live: %w", err)
	}
	return h, nil
}

// source is one program that prints rules.
type source struct {
	program string
	family  netfilter.Family
	variant netfilter.Variant
	names   string // the file that lists the legacy tables, "" for nft
}

var sources = []source{
	{"iptables-legacy-save", netfilter.IPv4, netfilter.Legacy, "/proc/thread-self/net/ip_tables_names"},
	{"ip6tables-legacy-save", netfilter.IPv6, netfilter.Legacy, "/proc/thread-self/net/ip6_tables_names"},
	{"iptables-nft-save", netfilter.IPv4, netfilter.NFT, ""},
	{"ip6tables-nft-save", netfilter.IPv6, netfilter.NFT, ""},
}

// rules runs the save programs. A legacy program is run only for tables that
// exist, because asking the kernel for one creates it.
func rules(ctx context.Context, h *netfilter.Host) error {
	found := false
	for _, s := range sources {
		if s.names != "" {
			b, err := os.ReadFile(s.names)
			if err != nil || len(bytes.TrimSpace(b)) == 0 {
				continue // the kernel has no legacy tables here
			}
		}
		path, ok := program(s.program)
		if !ok {
			if s.names != "" {
				return fmt.Errorf("there are legacy tables (%s), but no %s to read them", s.names, s.program)
			}
			continue
		}
		found = true
		out, err := run(ctx, path, "-c")
		if err != nil {
			return err
		}
		d, err := iptsave.Parse(s.program, out, iptsave.Options{Family: s.family, Variant: s.variant})
		if err != nil {
			return err
		}
		// Each variant is read, so the hint that the other one exists is no
		// news.
		for _, w := range d.Warnings {
			if !strings.Contains(w, "tables present, use") {
				h.Warnings = append(h.Warnings, w)
			}
		}
		for _, t := range d.Tables {
			if err := h.AddTable(t); err != nil {
				return err
			}
		}
	}
	if !found {
		h.Warnings = append(h.Warnings, "no iptables tables and no iptables-nft-save were found: no rules of iptables were read")
	}
	return nil
}

// program finds a program in PATH or in the folders where root's are.
func program(name string) (string, bool) {
	if p, err := exec.LookPath(name); err == nil {
		return p, true
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if p := filepath.Join(dir, name); executable(p) {
			return p, true
		}
	}
	return "", false
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// run gives what a program prints; an error has the end of what it complains.
func run(ctx context.Context, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(complaint.String())
		if len(text) > 300 {
			text = text[len(text)-300:]
		}
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(path), strings.Join(args, " "), err, text)
	}
	return out.String(), nil
}

// sets reads ipsets, if the program is there and the kernel has any.
func sets(ctx context.Context, h *netfilter.Host) error {
	path, ok := program("ipset")
	if !ok {
		return nil
	}
	out, err := run(ctx, path, "save")
	if err != nil {
		// A kernel without ipset: rules cannot use sets either.
		h.Warnings = append(h.Warnings, err.Error())
		return nil
	}
	h.Sets, err = ipsetsave.Parse("ipset save", out)
	h.Have.Sets = true
	return err
}

// servers reads IPVS, where the kernel has it.
func servers(h *netfilter.Host) error {
	text, err := ipvsText()
	h.Have.Servers = true
	if err != nil || text == "" {
		return err
	}
	h.Servers, err = ipvssave.Parse("the kernel's virtual servers", text)
	return err
}

// flows reads tracked connections, if the program is there.
func flows(ctx context.Context, h *netfilter.Host) error {
	path, ok := program("conntrack")
	if !ok {
		return nil
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		out, err := run(ctx, path, "-L", "-f", family)
		if err != nil {
			h.Warnings = append(h.Warnings, err.Error())
			return nil
		}
		f, err := conntracklist.Parse("conntrack -L -f "+family, out)
		if err != nil {
			return err
		}
		h.Flows = append(h.Flows, f...)
	}
	h.Have.Flows = true
	return nil
}
