package detect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan/netfilter"
)

// headings of what "portolan plan" prints for ipvs mode, a part for each program.
// Those of addresses are not told by their lines.
const (
	headSets      = "# ipset restore"
	headRules     = "# iptables-restore"
	headRules6    = "# ip6tables-restore"
	headServers   = "# ipvsadm -R"
	headAddresses = "# ip -batch -"
)

// parts cuts a plan of ipvs mode at its headings. Every other text is one part. A
// part is named after the text and the line before it, so that its lines are found.
func parts(t Text) []Text {
	if !strings.HasPrefix(t.Text, headSets+"\n") && !strings.Contains(t.Text, "\n"+headSets+"\n") {
		return []Text{t}
	}
	headings := []string{headSets, headRules, headRules6, headServers, headAddresses}
	var out []Text
	n := 0
	for line := range strings.Lines(t.Text) {
		n++
		heading := strings.TrimRight(line, "\r\n")
		if slices.Contains(headings, heading) {
			if heading == headRules6 {
				line = "# ip6tables\n"
			}
			out = append(out, Text{Name: fmt.Sprintf("%s after line %d", t.Name, n-1)})
		}
		if len(out) > 0 {
			out[len(out)-1].Text += line
		}
	}
	return out
}

// addAddresses reads "address add" lines of "ip -batch". Interfaces that are there
// keep what they have.
func addAddresses(h *netfilter.Host, t Text) error {
	for n, line := range strings.Split(t.Text, "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0][0] == '#':
		case len(f) == 5 && f[0] == "link" && f[1] == "add" && f[3] == "type":
			interfaceOf(h, f[2]).Kind = f[4]
		case len(f) == 5 && f[0] == "address" && f[1] == "add" && f[3] == "dev":
			p, err := netip.ParsePrefix(f[2])
			if err != nil {
				return fmt.Errorf("detect: %s:%d: %w", t.Name, n+1, err)
			}
			i := interfaceOf(h, f[4])
			i.Addresses = append(i.Addresses, netfilter.InterfaceAddress{Prefix: p})
		default:
			return fmt.Errorf("detect: %s:%d: %q is no link or address of a plan", t.Name, n+1, line)
		}
	}
	return nil
}

// interfaceOf finds an interface, made when needed.
func interfaceOf(h *netfilter.Host, name string) *netfilter.Interfaced {
	for i := range h.Interfaces {
		if h.Interfaces[i].Name == name {
			return &h.Interfaces[i]
		}
	}
	h.Interfaces = append(h.Interfaces, netfilter.Interfaced{Name: name})
	return &h.Interfaces[len(h.Interfaces)-1]
}
