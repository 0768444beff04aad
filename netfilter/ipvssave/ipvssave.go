package ipvssave

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// Parse reads all three forms. Errors name file and line.
func Parse(file, text string) ([]netfilter.VirtualServer, error) {
	var p parser
	for n := 1; text != ""; n++ {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		if err := p.line(f); err != nil {
			return nil, fmt.Errorf("ipvssave: %s:%d: %w", file, n, err)
		}
	}
	return p.servers, nil
}

// parser is what was read so far.
type parser struct {
	servers []netfilter.VirtualServer
	hex     bool // addresses and ports are hexadecimal, as in /proc
}

// line reads one line of a listing, or one command.
func (p *parser) line(f []string) error {
	if f[0] == "ipvsadm" {
		f = f[1:]
	}
	switch {
	case len(f) == 0 || f[0] == "-C" || f[0] == "--clear":
		return nil
	case f[0] == "IP":
		return nil // the version
	case f[0] == "Prot":
		if f[len(f)-1] != "Flags" {
			return errors.New("a listing of statistics does not say how virtual servers choose: use ipvsadm -Ln or -Sn")
		}
		return nil
	case f[0] == "->":
		return p.realListed(f[1:])
	case f[0] == "-A" || f[0] == "--add-service":
		return p.saved(f[1:])
	case f[0] == "-a" || f[0] == "--add-server":
		return p.realSaved(f[1:])
	case f[0] == "IPVS" || f[0] == "pro":
		return errors.New("a list of connections names no virtual servers: use ipvsadm -Ln or -Sn")
	}
	return p.listed(f)
}

// listed reads "TCP 10.96.0.1:443 rr persistent 10800 mask 255.255.255.0".
func (p *parser) listed(f []string) error {
	if len(f) < 2 {
		return fmt.Errorf("%q is no virtual server", strings.Join(f, " "))
	}
	s := netfilter.VirtualServer{Family: netfilter.IPv4}
	rest := f[2:]
	if f[0] == "FWM" {
		n, err := strconv.ParseUint(f[1], p.markBase(f[1]), 32)
		if err != nil {
			return fmt.Errorf("mark %q is no number", f[1])
		}
		s.Mark = uint32(n)
		if len(rest) > 0 && rest[0] == "IPv6" {
			s.Family, rest = netfilter.IPv6, rest[1:]
		}
	} else if err := p.address(&s, f[0], f[1]); err != nil {
		return err
	}
	if len(rest) == 0 {
		return fmt.Errorf("virtual server %s has no scheduler", f[1])
	}
	s.Scheduler, s.ClientBits = rest[0], s.Family.Bits()
	if err := p.flags(&s, rest[1:]); err != nil {
		return err
	}
	p.servers = append(p.servers, s)
	return nil
}

// markBase is the base of a mark: /proc has eight hexadecimal digits.
func (p *parser) markBase(text string) int {
	if len(text) == 8 {
		p.hex = true
		return 16
	}
	return 10
}

// address reads the protocol and the address of a virtual server. What the first
// one looks like tells whether numbers are hexadecimal.
func (p *parser) address(s *netfilter.VirtualServer, proto, addr string) error {
	n, ok := netfilter.ProtoByName(strings.ToLower(proto))
	if !ok || n != netfilter.TCP && n != netfilter.UDP && n != netfilter.SCTP {
		return fmt.Errorf("protocol %q is neither TCP, UDP nor SCTP", proto)
	}
	if host, _, _ := strings.Cut(addr, ":"); len(host) == 8 && !strings.Contains(host, ".") && !strings.HasPrefix(addr, "[") {
		p.hex = true
	}
	a, err := p.addrPort(addr)
	if err != nil {
		return err
	}
	s.Proto, s.Addr, s.Port, s.Family = n, a.Addr(), a.Port(), netfilter.FamilyOf(a.Addr())
	return nil
}

// addrPort reads both forms: that of ipvsadm and the hexadecimal one of /proc.
func (p *parser) addrPort(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(text); err == nil && !p.hex {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address with a port", text)
	}
	host := text[:i]
	// In /proc IPv6 addresses are written as usual, and their ports are hexadecimal:
	// so are those of a text whose first line did not tell.
	port, err := strconv.ParseUint(text[i+1:], 16, 16)
	if err != nil || len(text[i+1:]) != 4 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address with a port in numbers (ipvsadm -n prints them)", text)
	}
	if strings.HasPrefix(host, "[") {
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("%q is no address", host)
		}
		return netip.AddrPortFrom(a, uint16(port)), nil
	}
	n, err := strconv.ParseUint(host, 16, 32)
	if err != nil || len(host) != 8 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", host)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), uint16(port)), nil
}

// flags reads what stands behind the scheduler in a listing.
func (p *parser) flags(s *netfilter.VirtualServer, f []string) error {
	for i := 0; i < len(f); i++ {
		next := func() string {
			if i++; i < len(f) {
				return f[i]
			}
			return ""
		}
		switch f[i] {
		case "persistent":
			text := next()
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return fmt.Errorf("persistence %q is no number of seconds", text)
			}
			if s.Persistence = n; p.hex { // ticks and a hexadecimal mask in /proc
				s.Persistence = n / 1000
			}
		case "mask":
			if err := mask(s, next()); err != nil {
				return err
			}
		case "ops":
			s.OnePacket = true
		default:
			if bits, ok := hexMask(f[i]); ok && p.hex && s.Persistence > 0 {
				s.ClientBits = bits
				continue
			}
			s.Flags = strings.TrimSpace(s.Flags + " " + f[i])
		}
	}
	return nil
}

// mask reads which addresses count as one client.
func mask(s *netfilter.VirtualServer, text string) error {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 && n <= s.Family.Bits() {
		s.ClientBits = n
		return nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		return fmt.Errorf("persistence mask %q is neither a netmask nor a length", text)
	}
	s.ClientBits = ones(a.AsSlice())
	return nil
}

func hexMask(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil || len(text) != 8 {
		return 0, false
	}
	return ones([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), true
}

// ones counts the leading ones.
func ones(b []byte) int {
	n := 0
	for _, x := range b {
		for x&0x80 != 0 {
			n, x = n+1, x<<1
		}
	}
	return n
}

// realListed reads "10.244.0.4:80 Masq 1 0 0".
func (p *parser) realListed(f []string) error {
	if len(f) > 0 && strings.HasPrefix(f[0], "RemoteAddress") {
		return nil
	}
	if len(p.servers) == 0 {
		return errors.New("a real server before any virtual server")
	}
	if len(f) < 5 {
		return fmt.Errorf("real server %q has not address, way, weight and connections", strings.Join(f, " "))
	}
	a, err := p.addrPort(f[0])
	if err != nil {
		return err
	}
	r := netfilter.RealServer{Addr: a.Addr(), Port: a.Port()}
	way, ok := forwardings[f[1]]
	if !ok {
		return fmt.Errorf("%q is no way to a real server", f[1])
	}
	r.Forward = way
	var errs [3]error
	r.Weight, errs[0] = strconv.Atoi(f[2])
	r.Active, errs[1] = strconv.ParseUint(f[3], 10, 64)
	r.Inactive, errs[2] = strconv.ParseUint(f[4], 10, 64)
	if errs != [3]error{} || r.Weight < 0 {
		return fmt.Errorf("weight and connections of %s are no numbers", f[0])
	}
	s := &p.servers[len(p.servers)-1]
	s.Reals = append(s.Reals, r)
	return nil
}

// forwardings are the ways to a real server, in the words of ipvsadm -Ln.
var forwardings = map[string]netfilter.Forwarding{
	"Masq": netfilter.IPVSMasq, "Route": netfilter.IPVSRoute, "Tunnel": netfilter.IPVSTunnel, "Local": netfilter.IPVSLocal,
}
