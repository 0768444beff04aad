package ipvs

import (
	"fmt"
	"strings"

	"portolan/dataplane"
	"portolan/kernel/ipset"
	"portolan/service"
)

// setID is the place of a set in sets.
type setID int

// The sets. Those of portolan* are ours, all others kube-proxy's.
const (
	loopBack setID = iota
	clusterIP
	externalIP
	externalIPLocal
	loadBalancer
	loadBalancerFW
	loadBalancerLocal
	loadBalancerSourceIP
	loadBalancerSourceCIDR
	nodePortTCP
	nodePortLocalTCP
	nodePortUDP
	nodePortLocalUDP
	nodePortSCTP
	nodePortLocalSCTP
	healthCheckNodePort
	ipvsIPs
	portolanDrop   // addresses and ports that give no answer to who is outside
	portolanInside // virtual servers that only rules lead to; see inside.go
	setCount
)

// set is one of kube-proxy's sets, or of ours.
type set struct {
	id      setID
	name    string // of IPv4
	typ     ipset.Type
	comment string // of the rules that match with it
}

var sets = [setCount]set{
	{loopBack, "KUBE-LOOP-BACK", ipset.HashIPPortIP, "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"},
	{clusterIP, "KUBE-CLUSTER-IP", ipset.HashIPPort, "Kubernetes service cluster ip + port for masquerade purpose"},
	{externalIP, "KUBE-EXTERNAL-IP", ipset.HashIPPort, "Kubernetes service external ip + port for masquerade and filter purpose"},
	{externalIPLocal, "KUBE-EXTERNAL-IP-LOCAL", ipset.HashIPPort, "Kubernetes service external ip + port with externalTrafficPolicy=local"},
	{loadBalancer, "KUBE-LOAD-BALANCER", ipset.HashIPPort, "Kubernetes service lb portal"},
	{loadBalancerFW, "KUBE-LOAD-BALANCER-FW", ipset.HashIPPort, "Kubernetes service load balancer ip + port for load balancer with sourceRange"},
	{loadBalancerLocal, "KUBE-LOAD-BALANCER-LOCAL", ipset.HashIPPort, "Kubernetes service load balancer ip + port with externalTrafficPolicy=local"},
	{loadBalancerSourceIP, "KUBE-LOAD-BALANCER-SOURCE-IP", ipset.HashIPPortIP, "Kubernetes service load balancer ip + port + source IP for packet filter purpose"},
	{loadBalancerSourceCIDR, "KUBE-LOAD-BALANCER-SOURCE-CIDR", ipset.HashIPPortNet, "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"},
	{nodePortTCP, "KUBE-NODE-PORT-TCP", ipset.BitmapPort, "Kubernetes nodeport TCP port for masquerade purpose"},
	{nodePortLocalTCP, "KUBE-NODE-PORT-LOCAL-TCP", ipset.BitmapPort, "Kubernetes nodeport TCP port with externalTrafficPolicy=local"},
	{nodePortUDP, "KUBE-NODE-PORT-UDP", ipset.BitmapPort, "Kubernetes nodeport UDP port for masquerade purpose"},
	{nodePortLocalUDP, "KUBE-NODE-PORT-LOCAL-UDP", ipset.BitmapPort, "Kubernetes nodeport UDP port with externalTrafficPolicy=local"},
	{nodePortSCTP, "KUBE-NODE-PORT-SCTP-HASH", ipset.HashIPPort, "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'"},
	{nodePortLocalSCTP, "KUBE-NODE-PORT-LOCAL-SCTP-HASH", ipset.HashIPPort, "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'"},
	{healthCheckNodePort, "KUBE-HEALTH-CHECK-NODE-PORT", ipset.BitmapPort, "Kubernetes health check node port"},
	{ipvsIPs, "KUBE-IPVS-IPS", ipset.HashIP, ""},
	{portolanDrop, "KUBE-PORTOLAN-DROP", ipset.HashIPPort, ""},
	{portolanInside, "KUBE-PORTOLAN-INSIDE", ipset.HashIPPort, ""},
}

// mostEntries is how many entries a set takes: 16 times as many as kube-proxy's. A
// set takes memory for what is in it only.
const mostEntries = 1 << 20

// Containers of objects that are not rules.
const (
	setsContainer      = "sets"
	setPrefix          = "set/" // entries of one set
	deviceContainer    = "device"
	addressesContainer = "addresses"
	serversContainer   = "servers"
)

// kernelSets are the sets as they are to be in the kernel of one family. Names are
// cut as kube-proxy does.
func kernelSets(f service.Family) (out [setCount]ipset.Set) {
	for i, s := range sets {
		k := ipset.Set{Name: s.name, Type: s.typ}
		if f == service.IPv6 {
			k.Name = "KUBE-6-" + strings.TrimPrefix(s.name, "KUBE-")
			k.Name = k.Name[:min(len(k.Name), ipset.MaxName)]
		}
		if s.typ != ipset.BitmapPort {
			k.IPv6, k.MaxElements = f == service.IPv6, mostEntries
		}
		out[i] = k
	}
	return out
}

// name is the set's name in the family.
func (b *Backend) name(id setID) string { return b.sets[id].Name }

// describe is the Body of a set's object.
func describe(s ipset.Set) string {
	if s.Type == ipset.BitmapPort {
		return s.Name + " " + string(s.Type) + " range 0-65535"
	}
	family := "inet"
	if s.IPv6 {
		family = "inet6"
	}
	return fmt.Sprintf("%s %s family %s maxelem %d", s.Name, s.Type, family, s.MaxElements)
}

// setObjects asks for all sets; they are there, empty or not, since rules name them.
func (b *Backend) setObjects() []dataplane.Object {
	var out []dataplane.Object
	for _, s := range b.sets {
		out = append(out, dataplane.Object{
			Key:  dataplane.Key{Container: setsContainer, Rank: dataplane.Keyed, Name: s.Name},
			Body: describe(s),
		})
	}
	return out
}

// entry asks for a member of a set that no virtual server brings with it.
func (b *Backend) entry(id setID, text string) dataplane.Object {
	return dataplane.Object{
		Key:  dataplane.Key{Container: setPrefix + b.name(id), Rank: dataplane.Keyed, Name: text},
		Body: text,
	}
}

// ownEntries are the sets whose members are objects of their own.
var ownEntries = []setID{loopBack, nodePortTCP, nodePortLocalTCP, nodePortUDP, nodePortLocalUDP, healthCheckNodePort}

// memberSets are those whose members belong to virtual servers, in the order in
// which a server joins them: what protects comes before what opens.
var memberSets = []setID{loadBalancerSourceIP, loadBalancerSourceCIDR, loadBalancerFW, portolanDrop,
	loadBalancerLocal, nodePortLocalSCTP, nodePortSCTP, portolanInside, clusterIP, externalIP, externalIPLocal, loadBalancer}

// guards is how many of memberSets protect.
const guards = 4
