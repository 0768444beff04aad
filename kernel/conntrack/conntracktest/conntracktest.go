// Package conntracktest fills the table of connections of a network namespace,
// for tests and measurements.
package conntracktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"portolan/internal/netnstest"
	"portolan/kernel/conntrack"
)

// InNamespace moves the test to a network namespace of its own and opens the
// table there. The thread ends with the test.
func InNamespace(t testing.TB) *conntrack.Table {
	t.Helper()
	netnstest.Enter(t)
	table, err := conntrack.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

// Flow is a flow of a client on that port to a frontend, answered by an endpoint:
// an established one, if the protocol knows that.
func Flow(proto uint8, port uint16, frontend, endpoint string) conntrack.Flow {
	to, from := netip.MustParseAddrPort(frontend), netip.MustParseAddrPort(endpoint)
	client := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), port)
	if to.Addr().Is6() {
		client = netip.AddrPortFrom(netip.MustParseAddr("2001:db8::7"), port)
	}
	state := map[uint8]uint8{conntrack.TCP: conntrack.TCPEstablished, conntrack.SCTP: conntrack.SCTPEstablished}
	return conntrack.Flow{
		Proto: proto, State: state[proto], Status: conntrack.SeenReply | conntrack.Assured,
		Orig: conntrack.Tuple{Src: client, Dst: to}, Reply: conntrack.Tuple{Src: from, Dst: client},
	}
}

// batch is how many entries are sent at once.
const batch = 200

// Create puts entries into the table of this thread's namespace; they last an hour.
func Create(t testing.TB, flows ...conntrack.Flow) {
	t.Helper()
	if err := create(flows); err != nil {
		t.Fatal(err)
	}
}

// create sends flows in batches, and reads an acknowledgement for each.
func create(flows []conntrack.Flow) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := errors.Join(unix.Bind(fd, kernel), unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)); err != nil {
		return err
	}
	answer := make([]byte, 64<<10)
	for part := range slices.Chunk(flows, batch) {
		var all []byte
		for i, f := range part {
			flags := unix.NLM_F_CREATE | unix.NLM_F_EXCL
			if i == len(part)-1 {
				flags |= unix.NLM_F_ACK // the others answer only when they fail
			}
			all = append(all, request(f, flags).Serialize()...)
		}
		if err := unix.Sendto(fd, all, 0, kernel); err != nil {
			return err
		}
		n, _, err := unix.Recvfrom(fd, answer, 0)
		if err != nil {
			return err
		}
		if n < unix.NLMSG_HDRLEN+4 {
			return fmt.Errorf("the kernel answered %d bytes", n)
		}
		if code := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 {
			return fmt.Errorf("create an entry like %v: %w", part[0], unix.Errno(-code))
		}
	}
	return nil
}

// Attributes and bits of linux/netfilter/nfnetlink_conntrack.h that package nl
// does not name.
const (
	confirmed       = 1 << 3
	protoInfoSCTP   = 3
	sctpState       = 1
	sctpVtagOrig    = 2
	sctpVtagReply   = 3
	lastsForSeconds = 3600
)

// request is the message by which the kernel adds a confirmed flow.
func request(f conntrack.Flow, flags int) *nl.NetlinkRequest {
	family := uint8(unix.AF_INET)
	if f.Orig.Dst.Addr().Is6() {
		family = unix.AF_INET6
	}
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_NEW, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: unix.NFNETLINK_V0})
	r.AddData(tuple(nl.CTA_TUPLE_ORIG, f.Proto, f.Orig))
	r.AddData(tuple(nl.CTA_TUPLE_REPLY, f.Proto, f.Reply))
	r.AddData(nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(uint32(f.Status)|confirmed)))
	r.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(lastsForSeconds)))
	if f.Zone != 0 {
		r.AddData(nl.NewRtAttr(nl.CTA_ZONE, nl.BEUint16Attr(f.Zone)))
	}
	info := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_PROTOINFO, nil)
	switch f.Proto {
	case conntrack.TCP:
		tcp := info.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_PROTOINFO_TCP, nil)
		tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_STATE, nl.Uint8Attr(f.State))
		r.AddData(info)
	case conntrack.SCTP:
		sctp := info.AddRtAttr(unix.NLA_F_NESTED|protoInfoSCTP, nil)
		sctp.AddRtAttr(sctpState, nl.Uint8Attr(f.State))
		sctp.AddRtAttr(sctpVtagOrig, nl.BEUint32Attr(1))
		sctp.AddRtAttr(sctpVtagReply, nl.BEUint32Attr(2))
		r.AddData(info)
	}
	return r
}

// tuple is one direction of a flow, as an attribute.
func tuple(typ int, proto uint8, t conntrack.Tuple) *nl.RtAttr {
	src, dst := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if t.Dst.Addr().Is6() {
		src, dst = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	out := nl.NewRtAttr(unix.NLA_F_NESTED|typ, nil)
	ip := out.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
	ip.AddRtAttr(src, t.Src.Addr().AsSlice())
	ip.AddRtAttr(dst, t.Dst.Addr().AsSlice())
	ports := out.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	ports.AddRtAttr(nl.CTA_PROTO_NUM, nl.Uint8Attr(proto))
	ports.AddRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(t.Src.Port()))
	ports.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(t.Dst.Port()))
	return out
}
