package verify_test

import (
	"fmt"
	"strings"

	"portolan/service"
)

// peerChains are those of kube-proxy's nftables mode that do not depend on Services.
const peerChains = `	chain filter-prerouting-pre-dnat {
		type filter hook prerouting priority dstnat - 10; policy accept;
		ct state new jump firewall-check
	}
	chain filter-output-pre-dnat {
		type filter hook output priority -110; policy accept;
		ct state new jump firewall-check
	}
	chain filter-input {
		type filter hook input priority filter; policy accept;
		ct state new jump nodeport-endpoints-check
		ct state new jump service-endpoints-check
	}
	chain filter-forward {
		type filter hook forward priority filter; policy accept;
		ct state new jump service-endpoints-check
		ct state new jump cluster-ips-check
	}
	chain filter-output {
		type filter hook output priority filter; policy accept;
		ct state new jump service-endpoints-check
		ct state new jump cluster-ips-check
	}
	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}
	chain nat-output {
		type nat hook output priority -100; policy accept;
		jump services
	}
	chain nat-postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		jump masquerading
	}
	chain nodeport-endpoints-check {
		ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @no-endpoint-nodeports
	}
	chain service-endpoints-check {
		ip daddr . meta l4proto . th dport vmap @no-endpoint-services
	}
	chain firewall-check {
		ip daddr . meta l4proto . th dport vmap @firewall-ips
	}
	chain services {
		ip daddr @cluster-ips ip saddr != 10.128.0.0/9 meta mark set meta mark | 0x00004000
		ip daddr . meta l4proto . th dport vmap @service-ips
		fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports
	}
	chain masquerading {
		meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
		ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
	}
	chain cluster-ips-check {
		ip daddr @cluster-ips reject
	}
`

// peerTable is what kube-proxy's nftables mode has for Services of manyServices.
func peerTable(s *service.Snapshot) string {
	const key = "type ipv4_addr . inet_proto . inet_service : verdict"
	var vips, ips, nodePorts, hairpins []string
	var chains strings.Builder
	for svc := range s.All() {
		p := svc.Ports[0]
		name := "AAAAAAAA-" + svc.Name.String() + "/tcp/" + p.Name
		vip := svc.ClusterIPs[0].String()
		vips = append(vips, vip)
		ips = append(ips, fmt.Sprintf("%s . tcp . %d : goto service-%s", vip, p.Port, name))
		var slots []string
		for i, e := range p.Endpoints {
			slots = append(slots, fmt.Sprintf("%d : %s . %d", i, e.Addr.Addr(), e.Addr.Port()))
			if e.LocalTo(s.Node.Name) {
				hairpins = append(hairpins, fmt.Sprintf("%[1]s . %[1]s . tcp . %d", e.Addr.Addr(), e.Addr.Port()))
			}
		}
		fmt.Fprintf(&chains, "\tchain service-%s {\n\t\tmeta l4proto tcp dnat ip to numgen random mod %d map { %s }\n\t}\n", name, len(slots), strings.Join(slots, ", "))
		if p.NodePort != 0 {
			nodePorts = append(nodePorts, fmt.Sprintf("tcp . %d : goto external-%s", p.NodePort, name))
			fmt.Fprintf(&chains, "\tchain external-%[1]s {\n\t\tmeta mark set meta mark | 0x00004000\n\t\tgoto service-%[1]s\n\t}\n", name)
		}
	}
	var b strings.Builder
	b.WriteString("table ip kube-proxy {\n")
	set := func(kind, name, typ string, elements []string) {
		fmt.Fprintf(&b, "\t%s %s {\n\t\t%s\n", kind, name, typ)
		if len(elements) > 0 {
			fmt.Fprintf(&b, "\t\telements = { %s }\n", strings.Join(elements, ",\n"))
		}
		b.WriteString("\t}\n")
	}
	set("set", "cluster-ips", "type ipv4_addr", vips)
	set("set", "hairpin-connections", "type ipv4_addr . ipv4_addr . inet_proto . inet_service", hairpins)
	set("map", "service-ips", key, ips)
	set("map", "service-nodeports", "type inet_proto . inet_service : verdict", nodePorts)
	set("map", "no-endpoint-services", key, nil)
	set("map", "no-endpoint-nodeports", "type inet_proto . inet_service : verdict", nil)
	set("map", "firewall-ips", key, nil)
	return b.String() + peerChains + chains.String() + "}\n"
}
