package judge

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"portolan/lab"
	"portolan/netfilter"
)

// legacyTrace is the trace of legacy tables: the TRACE target hands each packet, at
// each rule that it matches, to the logger of the namespace. With nfnetlink_log as
// logger the packet comes here, with the rule in front.
type legacyTrace struct {
	fd     int
	buffer []byte
}

// Attributes and commands of linux/netfilter/nfnetlink_log.h.
const (
	nfulaPacketHdr = 1
	nfulaMark      = 2
	nfulaIn        = 4
	nfulaOut       = 5
	nfulaPayload   = 9
	nfulaPrefix    = 10

	nfulaCfgCmd       = 1
	nfulaCfgMode      = 2
	nfulaCfgBuffer    = 3
	nfulaCfgThreshold = 5
	nfulCmdBind       = 1
	nfulCopyPacket    = 2
	nfulMsgConfig     = unix.NFNL_SUBSYS_ULOG<<8 | 1
)

func newLegacyTrace(h *lab.Host) (*legacyTrace, error) {
	err := h.Do(func() error {
		for _, family := range []string{"2", "10"} {
			if err := os.WriteFile("/proc/sys/net/netfilter/nf_log/"+family, []byte("nfnetlink_log"), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("judge: logger of %s: %w", h.Name, err)
	}
	t := &legacyTrace{buffer: make([]byte, 1<<16)}
	if t.fd, err = netlinkSocket(h); err != nil {
		return nil, err
	}
	const headers = 128
	for _, attr := range [][]byte{
		attribute(nfulaCfgCmd, nfulCmdBind),
		attribute(nfulaCfgMode, 0, 0, 0, headers, nfulCopyPacket, 0),
		attribute(nfulaCfgBuffer, 0, 0, 4, 0),
		attribute(nfulaCfgThreshold, 0, 0, 0, 1), // send each at once
	} {
		if err := request(t.fd, nfulMsgConfig, unix.AF_UNSPEC, 0, unix.NLM_F_ACK, attr, nil); err != nil {
			t.close()
			return nil, fmt.Errorf("judge: nfnetlink_log of %s: %w", h.Name, err)
		}
	}
	return t, nil
}

func (t *legacyTrace) close() { unix.Close(t.fd) }

func (t *legacyTrace) drain(add func(event)) (some bool, err error) {
	for {
		list, err := receive(t.fd, false, t.buffer)
		if err != nil || len(list) == 0 {
			return some, err
		}
		for _, m := range list {
			if e, ok := readLog(m); ok {
				some = true
				add(e)
			}
		}
	}
}

// readLog understands "TRACE: table:chain:kind:number ". The kernel calls a rule
// without matches a policy or a return if it looks like one, so only the number
// counts; at a chain's end it is one more than the chain has rules.
func readLog(m message) (event, bool) {
	e := event{family: m.family}
	attributes(m.attrs, func(a uint16, v []byte) {
		switch a {
		case nfulaPrefix:
			part := strings.Split(strings.TrimSpace(strings.TrimPrefix(text(v), "TRACE: ")), ":")
			if len(part) == 4 {
				e.table, e.chain = part[0], part[1]
				e.rule, _ = strconv.Atoi(part[3])
			}
		case nfulaPacketHdr:
			e.hook = netfilter.Hooks[v[2]]
		case nfulaMark:
			e.mark = binary.BigEndian.Uint32(v)
		case nfulaIn:
			e.in = int(binary.BigEndian.Uint32(v))
		case nfulaOut:
			e.out = int(binary.BigEndian.Uint32(v))
		case nfulaPayload:
			e.seen = read(v)
		}
	})
	return e, e.table != ""
}
