package iptables

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// Counted returns the rules of a chain as "iptables -S -v" lists them, each with
// "-c PACKETS BYTES"; none when there is no such chain. With both variants it costs
// what is in this chain (legacy: in this table), where iptables-nft-save 1.8.9 reads
// the chains of all tables.
func (t *Tool) Counted(ctx context.Context, table, chain string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	program := strings.TrimSuffix(t.SaveProgram, "-save")
	cmd := t.command(ctx, program, append(t.waitArgs(), "-t", table, "-v", "-S", chain)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		for _, notThere := range []string{"No chain/target/match by that name", "is incompatible, use 'nft' tool"} {
			if strings.Contains(stderr.String(), notThere) { // the second is what nft 1.8.9 says without a table
				return nil, nil
			}
		}
		return nil, fmt.Errorf("iptables: %s -t %s -v -S %s: %w: %s", program, table, chain, err, oneLine(stderr.String()))
	}
	var rules []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "-A ") {
			rules = append(rules, line)
		}
	}
	return rules, nil
}
