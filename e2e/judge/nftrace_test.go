package judge

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"portolan/lab"
	"portolan/netfilter"
)

// nftTrace is what "xtables-monitor --trace" and "nft monitor trace" read: events
// by netlink, in which rules have handles.
type nftTrace struct {
	fd     int
	rules  map[nftRule]int // the number of a rule in its chain
	begun  map[uint32]event
	buffer []byte
}

type nftRule struct {
	family netfilter.Family
	table  string
	handle uint64
}

// newNFTTrace listens to the trace of a node as its rules are now.
func newNFTTrace(h *lab.Host) (*nftTrace, error) {
	t := &nftTrace{rules: map[nftRule]int{}, begun: map[uint32]event{}, buffer: make([]byte, 1<<16)}
	list, err := netlinkSocket(h)
	if err != nil {
		return nil, err
	}
	defer unix.Close(list)
	for _, family := range []uint8{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		numbers := map[string]int{}
		err := request(list, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, family, 0, unix.NLM_F_DUMP, nil, func(m message) {
			var table, chain string
			var handle uint64
			attributes(m.attrs, func(kind uint16, value []byte) {
				switch kind {
				case unix.NFTA_RULE_TABLE:
					table = text(value)
				case unix.NFTA_RULE_CHAIN:
					chain = text(value)
				case unix.NFTA_RULE_HANDLE:
					handle = binary.BigEndian.Uint64(value)
				}
			})
			numbers[table+" "+chain]++
			t.rules[nftRule{familyOf(family), table, handle}] = numbers[table+" "+chain]
		})
		if err != nil {
			return nil, fmt.Errorf("list nft rules of %s: %w", h.Name, err)
		}
	}
	t.fd, err = netlinkSocket(h, unix.NFNLGRP_NFTRACE)
	return t, err
}

func (t *nftTrace) close() { unix.Close(t.fd) }

func (t *nftTrace) drain(add func(event)) (some bool, err error) {
	for {
		list, err := receive(t.fd, false, t.buffer)
		if err != nil || len(list) == 0 {
			return some, err
		}
		for _, m := range list {
			some = true
			if e, ok, err := t.read(m); err != nil {
				return some, err
			} else if ok {
				add(e)
			}
		}
	}
}

// read understands one event; ok is false for one that says nothing about a rule.
// Only the first event of a passage through a hook shows the packet and the
// interfaces; the others have its number.
func (t *nftTrace) read(m message) (e event, ok bool, err error) {
	var id, kind uint32
	var handle uint64
	var network, transport []byte
	e = event{family: m.family, after: true}
	attributes(m.attrs, func(a uint16, v []byte) {
		switch a {
		case unix.NFTA_TRACE_TABLE:
			e.table = text(v)
		case unix.NFTA_TRACE_CHAIN:
			e.chain = text(v)
		case unix.NFTA_TRACE_RULE_HANDLE:
			handle = binary.BigEndian.Uint64(v)
		case unix.NFTA_TRACE_TYPE:
			kind = binary.BigEndian.Uint32(v)
		case unix.NFTA_TRACE_ID:
			id = binary.BigEndian.Uint32(v)
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = v
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = v
		case unix.NFTA_TRACE_IIF:
			e.in = int(binary.BigEndian.Uint32(v))
		case unix.NFTA_TRACE_OIF:
			e.out = int(binary.BigEndian.Uint32(v))
		case unix.NFTA_TRACE_MARK:
			e.mark = binary.BigEndian.Uint32(v)
		}
	})
	if network != nil {
		e.seen = read(whole(network, transport))
		e.hook = netfilter.HookOfChain(e.chain)
		t.begun[id] = e
	}
	first := t.begun[id]
	e.hook, e.seen = first.hook, first.seen
	e.in, e.out = first.in, first.out
	switch kind {
	case unix.NFT_TRACETYPE_RULE:
		if handle == 0 { // the end of a chain
			return e, false, nil
		}
		n, known := t.rules[nftRule{e.family, e.table, handle}]
		if !known {
			return e, false, fmt.Errorf("judge: trace names rule %d of %s %s, which was not there", handle, e.table, e.chain)
		}
		e.rule = n
	case unix.NFT_TRACETYPE_POLICY:
	default:
		return e, false, nil
	}
	return e, true, nil
}

// whole puts the dumped headers together. The network header is cut at 40 bytes
// whatever its length is.
func whole(network, transport []byte) []byte {
	if len(network) > 20 && network[0]>>4 == 4 {
		if transport == nil {
			return network
		}
		network = network[:20]
	}
	return append(append([]byte(nil), network...), transport...)
}
