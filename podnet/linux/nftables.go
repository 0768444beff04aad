package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"portolan/dataplane"
	"portolan/kernel/nft"
	"portolan/podnet"
)

// NFTables is the dataplane.Kernel of the masquerade and forward rules of one
// family in a table of nftables, flannel-ipv4 or flannel-ipv6 as flannel calls
// them.
type NFTables struct {
	conn        *nft.Conn
	table       nft.Table
	fullyRandom bool
}

// The chains of the table, and the containers of its objects.
const (
	postrouting = "postrtg"
	forwarding  = "forward"
)

// NewNFTables returns the table of a family. The Conn is used by it alone.
func NewNFTables(conn *nft.Conn, f podnet.Family, fullyRandom bool) *NFTables {
	t := nft.Table{Family: nft.IPv4, Name: "flannel-ipv4"}
	if f == podnet.IPv6 {
		t = nft.Table{Family: nft.IPv6, Name: "flannel-ipv6"}
	}
	return &NFTables{conn, t, fullyRandom}
}

// NFTablesObjects are the rules as NFTables keeps them.
func NFTablesObjects(masquerade, forward []podnet.Rule) []dataplane.Object {
	var out []dataplane.Object
	for chain, rules := range map[string][]podnet.Rule{postrouting: masquerade, forwarding: forward} {
		for i, r := range rules {
			out = append(out, dataplane.Object{Key: dataplane.Key{Container: chain, Rank: i}, Body: r.String()})
		}
	}
	return out
}

// Observe yields the chains and rules of the table. A rule or a base chain that
// is none of ours has a body of its own, so that it differs from what is wanted.
func (k *NFTables) Observe(context.Context) iter.Seq2[dataplane.Object, error] {
	return func(yield func(dataplane.Object, error) bool) {
		objects, err := k.observe()
		if err != nil {
			yield(dataplane.Object{}, fmt.Errorf("podnet: observe table %s: %w", k.table, err))
			return
		}
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// observe reads our table; nothing where it is not there.
func (k *NFTables) observe() ([]dataplane.Object, error) {
	there, err := k.conn.HasTable(k.table)
	if err != nil || !there {
		return nil, err
	}
	chains, err := k.conn.Chains(k.table)
	if err != nil {
		return nil, err
	}
	rules, err := k.conn.Rules(k.table)
	if err != nil {
		return nil, err
	}
	var out []dataplane.Object
	for _, c := range chains {
		rank := 0
		out = append(out, dataplane.Object{Key: dataplane.Key{Container: c.Name}})
		add := func(body string) {
			out = append(out, dataplane.Object{Key: dataplane.Key{Container: c.Name, Rank: rank}, Body: body})
			rank++
		}
		if c != chainOf(c.Name) {
			add(fmt.Sprintf("chain of type %q at hook %d", c.Type, c.Hook))
		}
		for _, r := range rules {
			if r.Chain == c.Name {
				add(k.read(r))
			}
		}
	}
	return out, nil
}

// Apply writes the plan as one transaction.
func (k *NFTables) Apply(_ context.Context, p dataplane.Plan) error {
	chains, err := k.chains()
	if err != nil {
		return fmt.Errorf("podnet: write table %s: %w", k.table, err)
	}
	b := nft.NewBatch(k.table)
	b.AddTable(0)
	for _, c := range p.Changes {
		if i := slices.IndexFunc(chains, func(h nft.Chain) bool { return h.Name == c.Container }); i >= 0 {
			b.FlushChain(c.Container, 0)
			if c.Remove || chains[i] != chainOf(c.Container) {
				b.DeleteChain(c.Container, 0)
			}
		}
		if c.Remove {
			continue
		}
		b.AddChain(chainOf(c.Container), 0)
		for _, o := range c.Lines {
			rule, err := podnet.ParseRule(o.Body)
			if err != nil {
				return err
			}
			b.AddRule(nft.Rule{Chain: c.Container, Exprs: k.exprs(rule)}, 0)
		}
	}
	if err := k.conn.Commit(b); err != nil {
		return fmt.Errorf("podnet: write table %s: %w", k.table, err)
	}
	return nil
}

func (k *NFTables) chains() ([]nft.Chain, error) {
	there, err := k.conn.HasTable(k.table)
	if err != nil || !there {
		return nil, err
	}
	return k.conn.Chains(k.table)
}

func chainOf(name string) nft.Chain {
	switch name {
	case postrouting:
		return nft.Chain{Name: name, Type: "nat", Hook: nft.Postrouting, Priority: 100}
	case forwarding:
		return nft.Chain{Name: name, Type: "filter", Hook: nft.Forward}
	}
	return nft.Chain{Name: name}
}

// Changes sends when somebody else changed the table.
func (k *NFTables) Changes(ctx context.Context) <-chan dataplane.Notice {
	out := make(chan dataplane.Notice, 1)
	listener, err := k.conn.Listen()
	if err != nil {
		return out
	}
	go func() {
		defer listener.Close()
		for {
			heard, err := listener.Wait(ctx, k.table)
			if ctx.Err() != nil || errors.Is(err, context.Canceled) {
				return
			}
			dataplane.Tell(out, dataplane.Notice{By: heard.Program, Urgent: heard.Removed})
			if err != nil {
				return
			}
		}
	}()
	return out
}
