package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan/netfilter"
	"portolan/service"
)

// nodePort is a NodePort in use.
type nodePort struct {
	port  uint16
	proto uint8
	name  string
}

// nodePorts lists the NodePorts of all Services, sorted.
func (w *world) nodePorts() (out []nodePort) {
	for s := range w.in.Services.All() {
		for _, p := range s.Ports {
			if proto, ok := netfilter.ProtoByName(string(p.Protocol)); ok && p.NodePort != 0 {
				out = append(out, nodePort{p.NodePort, proto, s.PortName(p).String()})
			}
		}
	}
	slices.SortFunc(out, func(a, b nodePort) int {
		return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.proto, b.proto), strings.Compare(a.name, b.name))
	})
	return out
}

// checkNodePorts: the kernel does not give a NodePort to a process as its local
// port, and no process listens there.
func checkNodePorts(w *world) (out []Finding) {
	if w.in.Services == nil {
		return nil
	}
	ports := w.nodePorts()
	if f, ok := w.localPorts(ports); ok {
		out = append(out, f)
	}
	for _, p := range ports {
		i := slices.IndexFunc(w.host.Listeners, func(l netfilter.Listener) bool {
			return l.Port == p.port && l.Proto == p.proto && w.catches(l)
		})
		if i < 0 {
			continue
		}
		who := "a process"
		if name := w.host.Listeners[i].Process; name == kubeProxy {
			continue // versions before 1.27 hold NodePorts open
		} else if name != "" {
			who = name
		}
		out = append(out, Finding{
			Code: PortListener, Severity: Warning, Object: fmt.Sprintf("%s port %d", netfilter.ProtoName(p.proto), p.port),
			Actual:   fmt.Sprintf("%s listens on it, and it is the NodePort of %s: connections from elsewhere go to the Service, not to the process", who, p.name),
			Expected: "NodePorts are nobody else's", Owner: Owner{admin, "whoever runs the process"},
			Fix: "move the process to another port, or give the Service another NodePort", Affected: []string{p.name},
		})
	}
	return out
}

// catches tells whether a socket is on an address at which NodePorts answer.
func (w *world) catches(l netfilter.Listener) bool {
	if !l.Addr.IsValid() || l.Addr.IsUnspecified() {
		return true
	}
	return slices.Contains(w.nodePortAddrs[service.FamilyOf(l.Addr)], l.Addr)
}

// localPorts finds NodePorts in the range of local ports that are not reserved.
func (w *world) localPorts(ports []nodePort) (Finding, bool) {
	const name = "net.ipv4.ip_local_port_range"
	var first, last uint16
	if _, err := fmt.Sscan(w.host.Sysctls[name], &first, &last); err != nil {
		return Finding{}, false
	}
	reserved := portList(w.host.Sysctls["net.ipv4.ip_local_reserved_ports"])
	var inside []string
	var affected []string
	for _, p := range ports {
		in := slices.ContainsFunc(reserved, func(r netfilter.PortRange) bool { return r.Contains(p.port) })
		if p.port >= first && p.port <= last && !in {
			inside = append(inside, strconv.Itoa(int(p.port)))
			affected = append(affected, p.name)
		}
	}
	inside = slices.Compact(inside)
	if len(inside) == 0 {
		return Finding{}, false
	}
	return Finding{
		Code: PortRange, Severity: Warning, Object: name, Owner: kernelOwner,
		Actual:   fmt.Sprintf("it is %d-%d, which has NodePorts %s: a connection of this host that happens to use such a port loses its answers to the Service", first, last, some(inside)),
		Expected: "local ports and NodePorts are apart",
		Fix:      "sysctl -w net.ipv4.ip_local_reserved_ports=30000-32767 (the NodePort range), or move the range of local ports",
		Affected: slices.Compact(affected),
	}, true
}

// portList reads "8080,30000-32767".
func portList(text string) (out []netfilter.PortRange) {
	for _, part := range strings.Split(text, ",") {
		a, b, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			b = a
		}
		first, err := strconv.ParseUint(a, 10, 16)
		last, err2 := strconv.ParseUint(b, 10, 16)
		if err == nil && err2 == nil {
			out = append(out, netfilter.PortRange{First: uint16(first), Last: uint16(last)})
		}
	}
	return out
}
