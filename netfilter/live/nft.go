package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"portolan/netfilter"
	"portolan/netfilter/nfttext"
)

// nftables reads the tables of nft with nft itself. Without the program a host
// whose only tables are iptables' is read all the same: iptables-nft-save
// shows these.
func nftables(ctx context.Context, h *netfilter.Host) error {
	tables, err := nftTables()
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(tables), iptablesKeeps)
	path, ok := program("nft")
	switch {
	case len(tables) == 0:
		return nil
	case !ok && len(others) == 0:
		return nil
	case !ok:
		return fmt.Errorf("there are nft tables (%s), but no nft to read them", strings.Join(others, ", "))
	}
	out, err := run(ctx, path, "list", "ruleset")
	if err != nil {
		return err
	}
	d, err := nfttext.Parse("nft list ruleset", out)
	if err != nil {
		return err
	}
	h.Warnings = append(h.Warnings, d.Warnings...)
	for _, t := range d.Tables {
		if err := h.AddTable(t); err != nil {
			return err
		}
	}
	// That iptables' own tables are taken from iptables-nft-save is no news.
	h.PreferIPTables()
	return nil
}

// iptablesKeeps tells the tables that iptables-nft-save reads.
func iptablesKeeps(title string) bool {
	family, name, _ := strings.Cut(title, " ")
	return (family == "ip" || family == "ip6") && netfilter.TableHooks(name) != nil
}

var nftFamilies = map[uint8]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet", unix.NFPROTO_ARP: "arp", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev"}

// nftTables asks the kernel for the titles of nft's tables: "ip filter". A
// kernel without nftables has none.
func nftTables() ([]string, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_UNSPEC})
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing nft tables: %w", err)
	}
	var out []string
	for _, m := range msgs {
		if len(m) < nl.SizeofNfgenmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, fmt.Errorf("listing nft tables: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.NFTA_TABLE_NAME {
				out = append(out, nftFamilies[m[0]]+" "+strings.TrimRight(string(a.Value), "\x00"))
			}
		}
	}
	return out, nil
}
