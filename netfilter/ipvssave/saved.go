package ipvssave

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// words are what is still to be read of a line.
type words []string

// next takes the next word, "" at the end of the line.
func (w *words) next() string {
	if len(*w) == 0 {
		return ""
	}
	word := (*w)[0]
	*w = (*w)[1:]
	return word
}

// saved reads what follows -A: "-t 10.96.0.1:443 -s rr -p 10800".
func (p *parser) saved(f []string) error {
	s, rest, err := p.identity(f)
	if err != nil {
		return err
	}
	s.Scheduler = "wlc" // ipvsadm's default
	s.ClientBits = s.Family.Bits()
	for len(rest) > 0 {
		switch opt := rest.next(); opt {
		case "-s", "--scheduler":
			s.Scheduler = rest.next()
		case "-p", "--persistent":
			s.Persistence = 300 // ipvsadm's default
			if len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
				text := rest.next()
				if s.Persistence, err = strconv.Atoi(text); err != nil || s.Persistence < 0 {
					return fmt.Errorf("persistence %q is no number of seconds", text)
				}
			}
		case "-M", "--netmask":
			if err := mask(&s, rest.next()); err != nil {
				return err
			}
		case "-o", "--ops":
			s.OnePacket = true
		case "-b", "--sched-flags", "--pe":
			s.Flags = strings.TrimSpace(s.Flags + " " + rest.next())
		default:
			return fmt.Errorf("option %q of a virtual server is not known", opt)
		}
	}
	if s.Scheduler == "" {
		return errors.New("-s names no scheduler")
	}
	if p.find(s) != nil {
		return errors.New("the virtual server is there already")
	}
	p.servers = append(p.servers, s)
	return nil
}

// identity reads what names a virtual server, and gives the other words.
func (p *parser) identity(f []string) (s netfilter.VirtualServer, rest words, err error) {
	if len(f) < 2 {
		return s, nil, errors.New("no virtual server is named")
	}
	s.Family = netfilter.IPv4
	switch f[0] {
	case "-t", "--tcp-service":
		err = p.address(&s, "tcp", f[1])
	case "-u", "--udp-service":
		err = p.address(&s, "udp", f[1])
	case "--sctp-service":
		err = p.address(&s, "sctp", f[1])
	case "-f", "--fwmark-service":
		var n uint64
		if n, err = strconv.ParseUint(f[1], 0, 32); err != nil || n == 0 {
			return s, nil, fmt.Errorf("mark %q is no number", f[1])
		}
		s.Mark = uint32(n)
	default:
		return s, nil, fmt.Errorf("%q names no virtual server", f[0])
	}
	for _, w := range f[2:] {
		if w == "-6" || w == "--ipv6" {
			s.Family = netfilter.IPv6
			continue
		}
		rest = append(rest, w)
	}
	return s, rest, err
}

// find finds the virtual server of the same name, nil if there is none.
func (p *parser) find(s netfilter.VirtualServer) *netfilter.VirtualServer {
	for i := range p.servers {
		x := &p.servers[i]
		if x.Proto == s.Proto && x.Addr == s.Addr && x.Port == s.Port && x.Mark == s.Mark && x.Family == s.Family {
			return x
		}
	}
	return nil
}

// realSaved reads what follows -a: "-t 10.96.0.1:443 -r 172.22.7.89:6443 -m -w 1".
func (p *parser) realSaved(f []string) error {
	id, rest, err := p.identity(f)
	if err != nil {
		return err
	}
	s := p.find(id)
	if s == nil {
		return errors.New("a real server of a virtual server that was not added")
	}
	r := netfilter.RealServer{Weight: 1, Forward: netfilter.IPVSRoute} // ipvsadm's defaults
	for len(rest) > 0 {
		switch opt := rest.next(); opt {
		case "-r", "--real-server":
			if err := p.realAddress(&r, s, rest.next()); err != nil {
				return err
			}
		case "-m", "--masquerading":
			r.Forward = netfilter.IPVSMasq
		case "-g", "--gatewaying":
			r.Forward = netfilter.IPVSRoute
		case "-i", "--ipip":
			r.Forward = netfilter.IPVSTunnel
		case "-w", "--weight":
			text := rest.next()
			if r.Weight, err = strconv.Atoi(text); err != nil || r.Weight < 0 {
				return fmt.Errorf("weight %q is no number", text)
			}
		case "-x", "--u-threshold", "-y", "--l-threshold", "--tun-type", "--tun-port":
			rest.next()
		case "--tun-nocsum", "--tun-csum", "--tun-remcsum":
		default:
			return fmt.Errorf("option %q of a real server is not known", opt)
		}
	}
	if !r.Addr.IsValid() {
		return errors.New("a real server without an address")
	}
	s.Reals = append(s.Reals, r)
	return nil
}

// realAddress reads an address; without a port it has that of its virtual server.
func (p *parser) realAddress(r *netfilter.RealServer, s *netfilter.VirtualServer, text string) error {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		r.Addr, r.Port = a.Unmap(), s.Port
		return nil
	}
	a, err := p.addrPort(text)
	r.Addr, r.Port = a.Addr(), a.Port()
	return err
}
