package live

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"portolan/netfilter"
	"portolan/netfilter/conntrackstat"
	"portolan/netfilter/socketlist"
)

// sockets reads who listens. A kernel without IPv6 has no tables of it.
func sockets(h *netfilter.Host) error {
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		proto, _ := netfilter.ProtoByName(strings.TrimSuffix(file, "6"))
		b, err := os.ReadFile("/proc/thread-self/net/" + file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading sockets: %w", err)
		}
		list, err := socketlist.Proc(proto, string(b))
		if err != nil {
			return fmt.Errorf("/proc/net/%s: %w", file, err)
		}
		h.Listeners = append(h.Listeners, list...)
	}
	h.Have.Listeners = true
	return nil
}

// counts reads counters of connection tracking and the names of nfacct objects,
// where the kernel has them.
func counts(h *netfilter.Host) error {
	const file = "/proc/thread-self/net/stat/nf_conntrack"
	if b, err := os.ReadFile(file); err == nil {
		if h.Conntrack, err = conntrackstat.Parse(file, string(b)); err != nil {
			return err
		}
		h.Have.Conntrack = true
	}
	return accounts(h)
}

// What linux/netfilter/nfnetlink_acct.h says.
const (
	acctGet  = 1 // NFNL_MSG_ACCT_GET
	acctName = 1 // NFACCT_NAME
)

// accounts reads the names of nfacct objects. A kernel that cannot have any has
// none that are known.
func accounts(h *netfilter.Host) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_ACCT<<8|acctGet, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_UNSPEC})
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil
	}
	h.Have.Accounts = true
	for _, m := range msgs {
		if len(m) < nl.SizeofNfgenmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
		if err != nil {
			return fmt.Errorf("listing nfacct objects: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type == acctName {
				h.Accounts = append(h.Accounts, strings.TrimRight(string(a.Value), "\x00"))
			}
		}
	}
	return nil
}
