package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"portolan/netfilter"
)

// Numbers of linux/ip_vs.h.
const (
	ipvsGetService, ipvsGetDest = 4, 8
	ipvsService, ipvsDest       = 1, 2

	serviceFamily, serviceProtocol, serviceAddr, servicePort, serviceMark        = 1, 2, 3, 4, 5
	serviceScheduler, serviceFlags, serviceTimeout, serviceNetmask               = 6, 7, 8, 9
	destAddr, destPort, destForward, destWeight, destActive, destInactive        = 1, 2, 3, 4, 7, 8
	destFamily                                                                   = 11
	servicePersistent, serviceOnePacket                                   uint32 = 0x1, 0x4
)

// ipvsText lists the virtual servers of this network namespace as `ipvsadm -Ln` does;
// "" where the kernel has no IPVS. /proc/net/ip_vs leaves servers out where other
// namespaces have some, too: from page to page it goes on behind as many as it has
// passed, of all namespaces, and counts only its own then (Linux 6.1).
func ipvsText() (string, error) {
	if _, err := os.Stat("/proc/thread-self/net/ip_vs"); errors.Is(err, fs.ErrNotExist) {
		return "", nil // and asking would load its module
	}
	family, err := netlink.GenlFamilyGet("IPVS")
	if err != nil {
		return "", fmt.Errorf("reading virtual servers: %w", err)
	}
	services, err := ipvsList(int(family.ID), ipvsGetService, nil)
	if err != nil {
		return "", fmt.Errorf("reading virtual servers: %w", err)
	}
	var b strings.Builder
	b.WriteString("IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n")
	for _, answer := range services {
		s := attributesOf(answer[ipvsService])
		b.WriteString(serviceLine(s) + "\n")
		of := nl.NewRtAttr(ipvsService|unix.NLA_F_NESTED, nil)
		for _, a := range []uint16{serviceFamily, serviceProtocol, serviceAddr, servicePort, serviceMark} {
			if v, ok := s[a]; ok {
				of.AddRtAttr(int(a), v)
			}
		}
		dests, err := ipvsList(int(family.ID), ipvsGetDest, of)
		if err != nil {
			return "", fmt.Errorf("reading real servers of %s: %w", serviceLine(s), err)
		}
		for _, answer := range dests {
			b.WriteString(destLine(attributesOf(answer[ipvsDest]), nl.NativeEndian().Uint16(pad(s[serviceFamily]))) + "\n")
		}
	}
	return b.String(), nil
}

// ipvsList asks for all of something.
func ipvsList(family int, command uint8, of *nl.RtAttr) (out []map[uint16][]byte, err error) {
	request := nl.NewNetlinkRequest(family, unix.NLM_F_DUMP)
	request.AddData(&nl.Genlmsg{Command: command, Version: 1})
	if of != nil {
		request.AddData(of)
	}
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	for _, a := range answers {
		if len(a) > nl.SizeofGenlmsg {
			out = append(out, attributesOf(a[nl.SizeofGenlmsg:]))
		}
	}
	return out, err
}

// attributesOf has the attributes by type; what is cut off is left out.
func attributesOf(b []byte) map[uint16][]byte {
	out := map[uint16][]byte{}
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return out
	}
	for _, a := range list {
		out[a.Attr.Type&^uint16(unix.NLA_F_NESTED)] = a.Value
	}
	return out
}

// pad makes a number readable that may be missing.
func pad(b []byte) []byte { return append(b[:len(b):len(b)], 0, 0, 0, 0, 0, 0, 0, 0) }

func number(b []byte) uint32 { return nl.NativeEndian().Uint32(pad(b)) }

// place is an address with its port, in the byte order of the network.
func place(family uint16, addr, port []byte) string {
	size := net.IPv4len
	if family == unix.AF_INET6 {
		size = net.IPv6len
	}
	if len(addr) < size {
		return ""
	}
	a, _ := netip.AddrFromSlice(addr[:size]) // of a size that it takes
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(pad(port))).String()
}

// serviceLine words a virtual server as ipvsadm -Ln does, so that one parser reads both.
func serviceLine(s map[uint16][]byte) string {
	family, mark := nl.NativeEndian().Uint16(pad(s[serviceFamily])), number(s[serviceMark])
	scheduler := strings.TrimRight(string(s[serviceScheduler]), "\x00")
	proto := strings.ToUpper(netfilter.ProtoName(uint8(nl.NativeEndian().Uint16(pad(s[serviceProtocol])))))
	line := fmt.Sprintf("%s  %s %s", proto, place(family, s[serviceAddr], s[servicePort]), scheduler)
	if mark != 0 {
		text := fmt.Sprint(mark)
		if len(text) == 8 { // which would look like the hexadecimal ones of /proc
			text = "0" + text
		}
		line = fmt.Sprintf("FWM  %s %s", text, scheduler)
		if family == unix.AF_INET6 {
			line = fmt.Sprintf("FWM  %s IPv6 %s", text, scheduler)
		}
	}
	flags := number(s[serviceFlags])
	if flags&servicePersistent != 0 {
		line += fmt.Sprintf(" persistent %d", number(s[serviceTimeout]))
		if mask := s[serviceNetmask]; family == unix.AF_INET6 && number(mask) != 128 {
			line += fmt.Sprintf(" mask %d", number(mask))
		} else if family == unix.AF_INET && len(mask) >= net.IPv4len && number(mask) != 1<<32-1 {
			line += " mask " + net.IP(mask[:net.IPv4len]).String()
		}
	}
	if flags&serviceOnePacket != 0 {
		line += " ops"
	}
	return line
}

// destLine is a real server; its family is that of the server where the kernel does not
// say (before 3.18).
func destLine(d map[uint16][]byte, family uint16) string {
	if own, ok := d[destFamily]; ok {
		family = nl.NativeEndian().Uint16(pad(own))
	}
	ways := [...]string{"Masq", "Local", "Tunnel", "Route", "Masq", "Masq", "Masq", "Masq"} // IP_VS_CONN_F_...
	return fmt.Sprintf("  -> %s %s %d %d %d", place(family, d[destAddr], d[destPort]), ways[number(d[destForward])&7], number(d[destWeight]), number(d[destActive]), number(d[destInactive]))
}
