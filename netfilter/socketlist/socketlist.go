// Package socketlist reads which sockets of a host listen: from `ss -lntu`,
// `netstat -lntu`, and the tables in /proc/net.
package socketlist

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// process finds the first program of `ss -p` ("users:(("sshd",pid=1,fd=3))") and
// of `netstat -p` ("123/sshd").
var process = regexp.MustCompile(`users:\(\("([^"]*)"|\s\d+/(\S+)`)

// Parse reads ss and netstat; what does not listen is left out. Errors name file
// and line.
func Parse(file, text string) ([]netfilter.Listener, error) {
	var out []netfilter.Listener
	for n, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		number, ok := netfilter.ProtoByName(strings.TrimSuffix(f[0], "6"))
		if !ok {
			continue // a heading, or another kind of socket
		}
		var local string
		switch {
		case f[1] == "LISTEN" || f[1] == "UNCONN": // ss
			if len(f) > 4 {
				local = f[4]
			}
		case strings.Contains(line, " LISTEN") || number == netfilter.UDP: // netstat
			local = f[3]
		}
		if local == "" {
			continue
		}
		l, err := listener(number, local)
		if err != nil {
			return nil, fmt.Errorf("socketlist: %s:%d: %w", file, n+1, err)
		}
		if m := process.FindStringSubmatch(line); m != nil {
			l.Process = m[1] + m[2]
		}
		out = append(out, l)
	}
	return out, nil
}

// listener reads an address with a port: "0.0.0.0:22", "*:22", "[::]:22", ":::22",
// "127.0.0.53%lo:53".
func listener(proto uint8, text string) (netfilter.Listener, error) {
	l := netfilter.Listener{Proto: proto}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return l, fmt.Errorf("%q is no address with a port", text)
	}
	port, err := strconv.ParseUint(text[i+1:], 10, 16)
	if err != nil {
		return l, fmt.Errorf("port of %q is no number (ss -n prints numbers)", text)
	}
	l.Port = uint16(port)
	host, _, _ := strings.Cut(strings.Trim(text[:i], "[]"), "%")
	if host == "*" || host == "::" || host == "" {
		return l, nil
	}
	if l.Addr, err = netip.ParseAddr(host); err != nil {
		return l, fmt.Errorf("%q is no address", host)
	}
	l.Addr = l.Addr.Unmap()
	return l, nil
}

// The states of sockets in /proc/net: TCP_LISTEN, and TCP_CLOSE, which is that of
// a UDP socket that nobody has connected.
const (
	tcpListen = "0A"
	udpOpen   = "07"
)

// Proc reads /proc/net/tcp, tcp6, udp or udp6 of this machine.
func Proc(proto uint8, text string) ([]netfilter.Listener, error) {
	want := tcpListen
	if proto == netfilter.UDP {
		want = udpOpen
	}
	var out []netfilter.Listener
	for n, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] == "sl" || f[3] != want {
			continue
		}
		host, port, _ := strings.Cut(f[1], ":")
		raw, err := hex.DecodeString(host)
		number, err2 := strconv.ParseUint(port, 16, 16)
		if err != nil || err2 != nil || len(raw) != 4 && len(raw) != 16 {
			return nil, fmt.Errorf("socketlist: line %d: %q is no address", n+1, f[1])
		}
		for w := 0; w < len(raw); w += 4 { // words in the order of a little-endian machine
			raw[w], raw[w+1], raw[w+2], raw[w+3] = raw[w+3], raw[w+2], raw[w+1], raw[w]
		}
		l := netfilter.Listener{Proto: proto, Port: uint16(number)}
		if a, _ := netip.AddrFromSlice(raw); a != netip.IPv6Unspecified() {
			l.Addr = a.Unmap()
		}
		out = append(out, l)
	}
	return out, nil
}
