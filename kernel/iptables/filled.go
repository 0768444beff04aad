package iptables

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"portolan/kernel/nft"
)

// Filled returns which of the tables may hold more than built-in chains without a
// rule. It asks the kernel itself and starts no program; a table that it cannot tell
// of is among them, for the program to say why.
func (t *Tool) Filled(tables ...string) (filled []string) {
	holds := t.holdsLegacy
	if t.Variant == NFT {
		holds = t.holdsNFT
	}
	return holds(tables)
}

func (t *Tool) holdsLegacy(tables []string) (filled []string) {
	var loaded []string
	for _, table := range tables {
		if t.Loaded(table) {
			loaded = append(loaded, table)
		}
	}
	if len(loaded) == 0 {
		return nil
	}
	e, err := openEye(t.Family, Legacy)
	if err != nil {
		return loaded
	}
	defer e.close()
	s, err := e.look()
	if err != nil {
		return loaded
	}
	for _, table := range loaded {
		if i := slices.Index(watchedTables[:], table); i < 0 || s.legacy[i] != (tableInfo{}) {
			filled = append(filled, table)
		}
	}
	return filled
}

func (t *Tool) holdsNFT(tables []string) (filled []string) {
	conn, err := nft.Dial()
	if err != nil {
		return tables
	}
	defer conn.Close()
	family := nft.IPv4
	if t.Family == IPv6 {
		family = nft.IPv6
	}
	there, err := conn.Tables(family)
	if errors.Is(err, unix.EINVAL) { // the answer of a kernel without nf_tables
		return nil
	}
	for _, table := range tables {
		if err != nil || slices.Contains(there, table) && holdsRules(conn, nft.Table{Family: family, Name: table}) {
			filled = append(filled, table)
		}
	}
	return filled
}

// builtIn are the chains that iptables makes of its own accord.
var builtIn = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

func holdsRules(conn *nft.Conn, table nft.Table) bool {
	chains, err := conn.Chains(table)
	if err != nil || slices.ContainsFunc(chains, func(c nft.Chain) bool { return c.Type == "" || !slices.Contains(builtIn, c.Name) }) {
		return true
	}
	rules, err := conn.Rules(table)
	return err != nil || len(rules) > 0
}
