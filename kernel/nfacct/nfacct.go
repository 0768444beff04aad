// Package nfacct makes the kernel's named accounting objects, which iptables
// rules with "-m nfacct" count into. A rule that names an object that does not
// exist is refused, so they have to be there first.
package nfacct

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Numbers of include/uapi/linux/netfilter/nfnetlink_acct.h.
const (
	subsystem     = 7 // NFNL_SUBSYS_ACCT
	messageNew    = 0 // NFNL_MSG_ACCT_NEW
	attributeName = 1 // NFACCT_NAME
	maxName       = 31
)

// Ensure makes the object of that name in the current network namespace, with
// counters at zero, unless it is there already. It fails where the kernel lacks
// nfnetlink_acct or the caller lacks CAP_NET_ADMIN.
func Ensure(name string) error {
	if len(name) == 0 || len(name) > maxName {
		return fmt.Errorf("nfacct: name %q is not 1 to %d bytes long", name, maxName)
	}
	req := nl.NewNetlinkRequest(subsystem<<8|messageNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(attributeName, nl.ZeroTerminated(name)))
	if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("nfacct: create %s: %w", name, err)
	}
	return nil
}
