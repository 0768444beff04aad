package iptables

import (
	"fmt"
	"strconv"

	"portolan/dataplane"
	"portolan/service"
)

// Ranks in the chains that all Services share.
const (
	servicesRank = iota
	lastRank
)

const nodePortsComment = `-m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain"`

// layout numbers how chains and rules are arranged, and goes up when a program
// that reads them has to know. An older or newer program need not: it compares
// rules, and removes the chains that begin with ownPrefix.
const layout = 1

// layoutRule is the one rule that kube-proxy does not write, and says so. It refuses a
// node's own connection to an external address without endpoints, as kube-proxy's
// nftables mode does. A jump from OUTPUT would do the same; but kube-proxy empties the
// chain that it stands in, so that it does not outlive the layout.
var layoutRule = dataplane.Object{
	Key:  dataplane.Key{Container: filterServices, Rank: lastRank},
	Body: layoutBody(strconv.Itoa(layout)),
}

func layoutBody(name string) string {
	return `-m comment --comment "portolan layout ` + name + `: external addresses for the node itself" -m addrtype --src-type LOCAL -j ` + chainOf(filterExternal)
}

// Base returns what does not depend on any Service: jumps, fixed chains with
// their rules, and canaries.
func (b *Backend) Base(node service.Node) []dataplane.Object {
	s := newSheet()
	for _, c := range topChains {
		s.rule(c, 0, "")
	}
	s.rule(filterFirewall, dataplane.Ensured, "chain")
	if b.localhost(node) {
		s.rule(localnet.Key.Container, localnet.Key.Rank, localnet.Key.Name, localnet.Body)
	}
	for i, j := range jumps {
		o := j.object(i)
		s.rule(o.Key.Container, o.Key.Rank, o.Key.Name, o.Body)
	}
	mark := layoutRule
	if b.options.Layout == Compact {
		mark = compactRule
		s.rule(natHairpin, 0, "")
		s.rule(natPostrouting, 0, "hairpin", "-m conntrack --ctstate DNAT -j ", chainOf(natHairpin))
	}
	s.rule(mark.Key.Container, mark.Key.Rank, mark.Key.Name, mark.Body)
	b.masquerade(s)
	b.forward(s)
	b.nodePortJumps(s, node)
	return s.objects()
}

// localhost tells whether NodePorts answer on loopback here.
func (b *Backend) localhost(node service.Node) bool {
	return b.options.Family == service.IPv4 && node.NodePorts.AllowsLocalhost()
}

// masquerade is KUBE-POSTROUTING, and KUBE-MARK-MASQ, which leads there.
func (b *Backend) masquerade(s *sheet) {
	random := ""
	if b.options.RandomFully {
		random = " --random-fully"
	}
	s.rule(natPostrouting, 1, "", "-m mark ! --mark ", b.mark, "/", b.mark, " -j RETURN")
	// The mark goes, so that a packet that passes POSTROUTING again, for example
	// when it leaves a tunnel, is not masqueraded twice.
	s.rule(natPostrouting, 2, "", "-j MARK --xor-mark ", b.mark)
	s.rule(natPostrouting, 3, "", `-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE`, random)
	s.rule(natMarkMasq, 1, "", "-j MARK --or-mark ", b.mark)
}

// forward is KUBE-FORWARD.
func (b *Backend) forward(s *sheet) {
	if !b.options.LiberalTCP {
		counter := ""
		if b.options.Nfacct.InvalidDropped {
			counter = " -m nfacct --nfacct-name " + InvalidDroppedCounter
		}
		s.rule(filterForward, 1, "", "-m conntrack --ctstate INVALID", counter, " -j DROP")
	}
	s.rule(filterForward, 2, "", `-m comment --comment "kubernetes forwarding rules" -m mark --mark `, b.mark, "/", b.mark, " -j ACCEPT")
	s.rule(filterForward, 3, "", `-m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`)
}

// nodePortJumps are the last lines of nat KUBE-SERVICES.
func (b *Backend) nodePortJumps(s *sheet, node service.Node) {
	if !node.NodePorts.All(b.options.Family) {
		for i, a := range node.NodePorts.Selected(b.options.Family) {
			s.rule(natServices, lastRank, fmt.Sprintf("%04d", i), nodePortsComment, " -d ", a.String(), " -j KUBE-NODEPORTS")
		}
		return
	}
	except := ""
	switch {
	case b.options.Family == service.IPv6:
		except = " ! -d ::1/128"
	case !b.localhost(node):
		except = " ! -d 127.0.0.0/8"
	}
	s.rule(natServices, lastRank, "", nodePortsComment, " -m addrtype --dst-type LOCAL", except, " -j KUBE-NODEPORTS")
}
