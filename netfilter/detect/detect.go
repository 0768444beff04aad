package detect

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"portolan/internal/readfile"
	"portolan/netfilter"
	"portolan/netfilter/conntracklist"
	"portolan/netfilter/conntrackstat"
	"portolan/netfilter/hostfile"
	"portolan/netfilter/iproute"
	"portolan/netfilter/ipsetsave"
	"portolan/netfilter/iptsave"
	"portolan/netfilter/ipvssave"
	"portolan/netfilter/nfacctlist"
	"portolan/netfilter/nftjson"
	"portolan/netfilter/nfttext"
	"portolan/netfilter/socketlist"
	"portolan/netfilter/sysctl"
)

// Text is one input with the name it has in errors.
type Text struct{ Name, Text string }

// Options say what a text itself may not.
type Options struct {
	Table string // of `iptables -S` and `iptables -L` texts
}

// mostOfFile bounds what is read into memory: a million connections are 250 MB.
const mostOfFile = 1 << 30

// Read reads files; a folder stands for the files in it.
func Read(paths ...string) ([]Text, error) {
	var out []Text
	var errs []error
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("detect: %w", err))
			continue
		}
		files := []string{p}
		if info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(p, "*")); err != nil {
				errs = append(errs, fmt.Errorf("detect: %w", err))
			}
		}
		for _, f := range files {
			if inner, err := os.Stat(f); info.IsDir() && err == nil && !inner.Mode().IsRegular() {
				if !inner.IsDir() { // a folder in a folder is not entered
					errs = append(errs, fmt.Errorf("detect: %s: not a regular file", f))
				}
				continue
			}
			text, err := readfile.AtMost(f, mostOfFile)
			if err != nil {
				errs = append(errs, fmt.Errorf("detect: %w", err))
				continue
			}
			out = append(out, Text{f, text})
		}
	}
	return out, errors.Join(errs...)
}

// Host puts texts together. Two texts may not give the same table of the same
// family and variant; only of iptables' tables in an nft ruleset the
// iptables-save text is taken, which says more.
func Host(o Options, texts ...Text) (*netfilter.Host, error) {
	h := &netfilter.Host{Sysctls: map[string]string{}}
	var errs []error
	for _, t := range texts {
		for _, part := range parts(t) {
			if err := add(h, o, part); err != nil {
				errs = append(errs, err)
			}
		}
	}
	h.Warnings = append(h.Warnings, h.PreferIPTables()...)
	return h, errors.Join(errs...)
}

// add reads one text, whatever it is, and adds what it says to the host.
func add(h *netfilter.Host, o Options, t Text) error {
	if strings.HasPrefix(t.Text, headAddresses+"\n") {
		return addAddresses(h, t)
	}
	kind := KindOf(t.Text)
	switch kind {
	case Nothing:
		h.Warnings = append(h.Warnings, t.Name+" is empty")
		return nil
	case Save, Listing:
		return addRules(h, o, t, kind)
	case HostFile:
		d, err := hostfile.Parse(t.Name, t.Text)
		if err != nil {
			return err
		}
		merge(h, d)
		return nil
	case Unrecognised:
		return fmt.Errorf("detect: %s: nothing that is known begins like this; \"portolan trace --help\" lists what is", t.Name)
	case NFTables, NFTJSON:
		return addNFT(h, t, kind)
	}
	return addState(h, t, kind)
}

func addRules(h *netfilter.Host, o Options, t Text, kind Kind) error {
	parse := iptsave.Parse
	if kind == Listing {
		parse = iptsave.ParseListing
	}
	d, err := parse(t.Name, t.Text, iptsave.Options{Table: o.Table})
	if err != nil {
		return err
	}
	return addTables(h, d.Tables, d.Warnings)
}

func addNFT(h *netfilter.Host, t Text, kind Kind) error {
	parse := nfttext.Parse
	if kind == NFTJSON {
		parse = nftjson.Parse
	}
	d, err := parse(t.Name, t.Text)
	if err != nil {
		return err
	}
	return addTables(h, d.Tables, d.Warnings)
}

func addTables(h *netfilter.Host, tables []*netfilter.Table, warnings []string) error {
	h.Warnings = append(h.Warnings, warnings...)
	for _, table := range tables {
		if err := h.AddTable(table); err != nil {
			return err
		}
	}
	return nil
}

// addState reads everything that is not rules.
func addState(h *netfilter.Host, t Text, kind Kind) error {
	d := &netfilter.Host{}
	var err error
	switch kind {
	case Addresses:
		d.Interfaces, err = iproute.Addresses(t.Name, t.Text)
		d.Have.Interfaces = true
	case Routes:
		d.Routes, err = iproute.Routes(t.Name, t.Text)
		d.Have.Routes = true
	case RouteN:
		d.Routes, err = iproute.RouteN(t.Name, t.Text)
		d.Have.Routes = true
	case Rules:
		d.RoutingRules, err = iproute.Rules(t.Name, t.Text)
		d.Have.RoutingRules = true
	case Neighbours:
		d.Neighbours, err = iproute.Neighbours(t.Name, t.Text)
		d.Have.Neighbours = true
	case ARP:
		d.Neighbours, err = iproute.ARP(t.Name, t.Text)
		d.Have.Neighbours = true
	case Sysctl:
		d.Sysctls, err = sysctl.Parse(t.Name, t.Text)
		d.Have.Sysctls = true
	case Conntrack:
		d.Flows, err = conntracklist.Parse(t.Name, t.Text)
		d.Have.Flows = true
	case IPSet:
		d.Sets, err = ipsetsave.Parse(t.Name, t.Text)
		d.Have.Sets = true
	case IPVS:
		d.Servers, err = ipvssave.Parse(t.Name, t.Text)
		d.Have.Servers = true
	case Sockets:
		d.Listeners, err = socketlist.Parse(t.Name, t.Text)
		d.Have.Listeners = true
	case ConntrackStat:
		d.Conntrack, err = conntrackstat.Parse(t.Name, t.Text)
		d.Have.Conntrack = true
	case Accounts:
		d.Accounts, err = nfacctlist.Parse(t.Name, t.Text)
		d.Have.Accounts = true
	default:
		panic("detect: kind " + kind.String())
	}
	if err != nil {
		return err
	}
	merge(h, d)
	return nil
}

// merge adds what d knows to h.
func merge(h, d *netfilter.Host) {
	h.Interfaces = append(h.Interfaces, d.Interfaces...)
	h.Routes = append(h.Routes, d.Routes...)
	h.RoutingRules = append(h.RoutingRules, d.RoutingRules...)
	h.Neighbours = append(h.Neighbours, d.Neighbours...)
	h.Flows = append(h.Flows, d.Flows...)
	h.Sets = append(h.Sets, d.Sets...)
	h.Servers = append(h.Servers, d.Servers...)
	h.Accounts = append(h.Accounts, d.Accounts...)
	h.Listeners = append(h.Listeners, d.Listeners...)
	h.Conntrack.InsertFailed += d.Conntrack.InsertFailed
	h.Conntrack.Drop += d.Conntrack.Drop
	h.Conntrack.EarlyDrop += d.Conntrack.EarlyDrop
	maps.Copy(h.Sysctls, d.Sysctls)
	h.Described = h.Described || d.Described
	a, b := &h.Have, d.Have
	a.Interfaces = a.Interfaces || b.Interfaces
	a.Routes = a.Routes || b.Routes
	a.RoutingRules = a.RoutingRules || b.RoutingRules
	a.Neighbours = a.Neighbours || b.Neighbours
	a.Sysctls = a.Sysctls || b.Sysctls
	a.Flows = a.Flows || b.Flows
	a.Sets = a.Sets || b.Sets
	a.Servers = a.Servers || b.Servers
	a.Accounts = a.Accounts || b.Accounts
	a.Listeners = a.Listeners || b.Listeners
	a.Conntrack = a.Conntrack || b.Conntrack
}
