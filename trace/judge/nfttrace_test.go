package judge

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// nftRule names a rule of nft as steps do: by its table's title, its chain,
// and its number.
type nftRule struct {
	table, chain string
	number       int
}

func (r nftRule) String() string { return fmt.Sprintf("%s %s:%d", r.table, r.chain, r.number) }

// monitor receives the kernel's trace events, which are what `nft monitor
// trace` prints. Events name rules by their handles.
type monitor struct {
	fd    int
	rules map[string]map[uint64]nftRule // by table
	buf   []byte
}

func newMonitor(t *testing.T) *monitor {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Skipf("no netlink socket for nftables: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTRACE); err != nil {
		t.Skipf("no trace events of nftables: %v", err)
	}
	return &monitor{fd: fd, buf: make([]byte, 1<<17)}
}

// learn asks nft for the handles of the rules.
func (m *monitor) learn(t *testing.T) {
	t.Helper()
	out, err := exec.Command("nft", "-j", "list", "ruleset").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		NFTables []struct {
			Rule *struct {
				Family, Table, Chain string
				Handle               uint64
			}
		} `json:"nftables"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	m.rules = map[string]map[uint64]nftRule{}
	count := map[string]int{}
	for _, x := range list.NFTables {
		if x.Rule == nil {
			continue
		}
		title := x.Rule.Family + " " + x.Rule.Table
		if m.rules[title] == nil {
			m.rules[title] = map[uint64]nftRule{}
		}
		count[title+" "+x.Rule.Chain]++
		m.rules[title][x.Rule.Handle] = nftRule{title, x.Rule.Chain, count[title+" "+x.Rule.Chain]}
	}
}

var familyNames = map[uint8]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet"}

// drain gives the rules that ran since the last call; it waits for the first
// event as long as said.
func (m *monitor) drain(t *testing.T, milliseconds int) []nftRule {
	t.Helper()
	var out []nftRule
	for {
		fds := []unix.PollFd{{Fd: int32(m.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, milliseconds); n <= 0 || err != nil {
			return out
		}
		milliseconds = 0
		n, _, err := unix.Recvfrom(m.fd, m.buf, 0)
		if err != nil {
			t.Fatalf("trace events: %v", err)
		}
		for b := m.buf[:n]; len(b) >= unix.NLMSG_HDRLEN; {
			size := binary.NativeEndian.Uint32(b)
			if size < unix.NLMSG_HDRLEN || int(size) > len(b) {
				break
			}
			if kind := binary.NativeEndian.Uint16(b[4:]); kind == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE {
				out = append(out, m.event(t, b[unix.NLMSG_HDRLEN:size])...)
			}
			b = b[min(len(b), int(size+3)&^3):]
		}
	}
}

// event reads one event; only those of rules count.
func (m *monitor) event(t *testing.T, b []byte) []nftRule {
	t.Helper()
	family := familyNames[b[0]]
	var table string
	var handle uint64
	for b = b[4:]; len(b) >= 4; {
		size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])&^unix.NLA_F_NESTED
		if size < 4 || size > len(b) {
			break
		}
		v := b[4:size]
		switch kind {
		case unix.NFTA_TRACE_TABLE:
			table = string(v[:len(v)-1])
		case unix.NFTA_TRACE_RULE_HANDLE:
			handle = binary.BigEndian.Uint64(v)
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	if handle == 0 {
		return nil // a policy, or the end of a chain
	}
	r, known := m.rules[family+" "+table][handle]
	if !known {
		t.Fatalf("a trace event names rule %d of %s %s, which was not there", handle, family, table)
	}
	return []nftRule{r}
}
