package iptables

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"portolan/kernel/nft"
)

// Filled returns which of the tables may hold more than built-in chains without a
// rule. It asks the kernel itself and starts no program; a table that it cannot tell
// of is among them, for the program to say why.
func (t *Tool) Filled(tables ...string) []string {
	filled, _ := t.filled(tables)
	return filled
}

// filled is Filled, with why it cannot tell of some.
func (t *Tool) filled(tables []string) (filled []string, err error) {
	if t.Variant == NFT {
		return t.holdsNFT(tables)
	}
	return t.holdsLegacy(tables)
}

// holdsLegacy asks only for tables that are loaded: asking for another one would load it.
func (t *Tool) holdsLegacy(tables []string) (filled []string, err error) {
	var loaded []string
	for _, table := range tables {
		if t.Loaded(table) {
			loaded = append(loaded, table)
		}
	}
	if len(loaded) == 0 {
		return nil, nil
	}
	e, err := openEye(t.Family, Legacy)
	if err != nil {
		return loaded, err
	}
	defer e.close()
	s, err := e.look()
	if err != nil {
		return loaded, err
	}
	for _, table := range loaded {
		if i := slices.Index(watchedTables[:], table); i < 0 || s.legacy[i] != (tableInfo{}) {
			filled = append(filled, table)
		}
	}
	return filled, nil
}

// holdsNFT returns those of the tables that hold rules, and all of them where that cannot be
// known.
func (t *Tool) holdsNFT(tables []string) (filled []string, err error) {
	conn, err := nft.Dial()
	if err != nil {
		return tables, err
	}
	defer conn.Close()
	there, err := conn.Tables(t.nftFamily())
	if errors.Is(err, unix.EINVAL) { // the answer of a kernel without nf_tables
		return nil, nil
	}
	for _, table := range tables {
		if err != nil || slices.Contains(there, table) && holdsRules(conn, nft.Table{Family: t.nftFamily(), Name: table}) {
			filled = append(filled, table)
		}
	}
	return filled, err
}

func (t *Tool) nftFamily() nft.Family {
	if t.Family == IPv6 {
		return nft.IPv6
	}
	return nft.IPv4
}

// hasOneOf tells whether the mangle table of nft has one of the chains; false when it
// cannot be told.
func (t *Tool) hasOneOf(chains []string) bool {
	conn, err := nft.Dial()
	if err != nil {
		return false
	}
	defer conn.Close()
	return slices.ContainsFunc(chains, func(chain string) bool {
		there, err := conn.HasChain(nft.Table{Family: t.nftFamily(), Name: "mangle"}, chain)
		return err == nil && there
	})
}

// Check asks the program that lists tables for as little as there is, for one that does
// not work to be noticed: of legacy tables the smallest, of nft its version, since there
// any table is as much as all.
func (t *Tool) Check(ctx context.Context) error {
	if t.Variant == NFT {
		_, _, err := programVersion(ctx, t.SaveProgram)
		return err
	}
	for _, err := range t.Save(ctx, t.smallest()) {
		if err != nil {
			return err
		}
	}
	return nil
}

// smallest is the legacy table with the least in it; nat where that cannot be told.
func (t *Tool) smallest() string {
	smallest := "nat"
	e, err := openEye(t.Family, Legacy)
	if err != nil {
		return smallest
	}
	defer e.close()
	s, err := e.look()
	least := 0
	for i, table := range watchedTables {
		if n := entries(s, i); err == nil && e.loaded[i] && (least == 0 || n < least) {
			smallest, least = table, n
		}
	}
	return smallest
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
