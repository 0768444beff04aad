// Package conntracklist reads what `conntrack -L` and /proc/net/nf_conntrack
// print.
package conntracklist

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// Parse reads one connection a line. Errors name file and line.
func Parse(file, text string) ([]netfilter.ConntrackEntry, error) {
	var out []netfilter.ConntrackEntry
	for n := 1; text != ""; n++ {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "conntrack v") {
			continue
		}
		e, err := entry(line)
		if err != nil {
			return nil, fmt.Errorf("conntracklist: %s:%d: %w", file, n, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// entry reads one line. Words of the first direction come before those of the answer, by the
// same names.
func entry(line string) (netfilter.ConntrackEntry, error) {
	var e netfilter.ConntrackEntry
	f := strings.Fields(line)
	if len(f) > 2 && (f[0] == "ipv4" || f[0] == "ipv6") {
		f = f[2:]
	}
	if len(f) < 4 {
		return e, fmt.Errorf("%q is no connection", line)
	}
	proto, err := strconv.ParseUint(f[1], 10, 8)
	if err != nil {
		return e, fmt.Errorf("protocol %q is no number", f[1])
	}
	e.Proto = uint8(proto)
	tuples := [2]*netfilter.Tuple{&e.Orig, &e.Reply}
	at := -1
	for i, w := range f[2:] {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			switch {
			case w == "[UNREPLIED]":
				e.Unreplied = true
			case w == "[ASSURED]":
				e.Assured = true
			case at < 0 && i == 0:
				e.Timeout, err = strconv.Atoi(w)
			case at < 0:
				e.State = w
			}
			if err != nil {
				return e, fmt.Errorf("timeout %q is no number", w)
			}
			continue
		}
		if key == "src" {
			if at++; at > 1 {
				return e, fmt.Errorf("more than two directions")
			}
		}
		var t *netfilter.Tuple
		if at >= 0 {
			t = tuples[at]
		}
		if err := field(&e, t, key, value); err != nil {
			return e, fmt.Errorf("%s: %w", w, err)
		}
	}
	if at != 1 {
		return e, fmt.Errorf("%q has not two directions", line)
	}
	return e, nil
}

// field reads one key=value; unknown keys are skipped.
func field(e *netfilter.ConntrackEntry, t *netfilter.Tuple, key, value string) error {
	var err error
	var n uint64
	switch key {
	case "src", "dst", "sport", "dport", "id", "type", "code":
		if t == nil {
			return fmt.Errorf("before the first src")
		}
	}
	switch key {
	case "src":
		t.Src, err = netip.ParseAddr(value)
	case "dst":
		t.Dst, err = netip.ParseAddr(value)
	case "sport", "id":
		n, err = strconv.ParseUint(value, 10, 16)
		t.SrcPort = uint16(n)
	case "dport":
		n, err = strconv.ParseUint(value, 10, 16)
		t.DstPort = uint16(n)
	case "type":
		n, err = strconv.ParseUint(value, 10, 8)
		t.DstPort |= uint16(n) << 8
	case "code":
		n, err = strconv.ParseUint(value, 10, 8)
		t.DstPort |= uint16(n)
	case "mark":
		n, err = strconv.ParseUint(value, 0, 32)
		e.Mark = uint32(n)
	case "zone":
		n, err = strconv.ParseUint(value, 10, 16)
		e.Zone = uint16(n)
	}
	return err
}
