package nftword

import "portolan/netfilter"

// names are the words for values, by type. Protocols have theirs in netfilter.
var names = map[netfilter.DataType]map[string]uint64{
	netfilter.StateType:      {"invalid": 1, "established": 2, "related": 4, "new": 8, "untracked": 64},
	netfilter.StatusType:     {"expected": 1, "seen-reply": 2, "assured": 4, "confirmed": 8, "snat": 16, "dnat": 32, "dying": 512},
	netfilter.DirectionType:  {"original": 0, "reply": 1},
	netfilter.TCPFlagType:    {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32, "ecn": 64, "cwr": 128},
	netfilter.BooleanType:    {"exists": 1, "missing": 0, "true": 1, "false": 0},
	netfilter.NFProtoType:    {"ipv4": 2, "ipv6": 10},
	netfilter.EthernetType:   {"ip": 0x0800, "arp": 0x0806, "ip6": 0x86dd, "vlan": 0x8100, "8021q": 0x8100, "8021ad": 0x88a8},
	netfilter.PacketType:     {"host": 0, "unicast": 0, "broadcast": 1, "multicast": 2, "other": 3},
	netfilter.ClassIDType:    {"none": 0, "root": 0xffffffff},
	netfilter.MarkType:       {},
	netfilter.ECNType:        {"not-ect": 0, "ect1": 1, "ect0": 2, "ce": 3},
	netfilter.AddrKindType:   {"unspec": 0, "unicast": 1, "local": 2, "broadcast": 3, "anycast": 4, "multicast": 5, "blackhole": 6, "unreachable": 7, "prohibit": 8, "throw": 9, "nat": 10, "xresolve": 11},
	netfilter.DSCPType:       dscp,
	netfilter.PortType:       services,
	netfilter.ICMPTypeType:   {"echo-reply": 0, "destination-unreachable": 3, "source-quench": 4, "redirect": 5, "echo-request": 8, "router-advertisement": 9, "router-solicitation": 10, "time-exceeded": 11, "parameter-problem": 12, "timestamp-request": 13, "timestamp-reply": 14, "info-request": 15, "info-reply": 16, "address-mask-request": 17, "address-mask-reply": 18},
	netfilter.ICMPv6TypeType: {"destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "parameter-problem": 4, "echo-request": 128, "echo-reply": 129, "mld-listener-query": 130, "mld-listener-report": 131, "mld-listener-done": 132, "mld-listener-reduction": 132, "nd-router-solicit": 133, "nd-router-advert": 134, "nd-neighbor-solicit": 135, "nd-neighbor-advert": 136, "nd-redirect": 137, "router-renumbering": 138, "ind-neighbor-solicit": 141, "ind-neighbor-advert": 142, "mld2-listener-report": 143},
	netfilter.ICMPCodeType:   {"net-unreachable": 0, "host-unreachable": 1, "prot-unreachable": 2, "port-unreachable": 3, "frag-needed": 4, "net-prohibited": 9, "host-prohibited": 10, "admin-prohibited": 13},
	netfilter.ICMPv6CodeType: {"no-route": 0, "admin-prohibited": 1, "addr-unreachable": 3, "port-unreachable": 4, "policy-fail": 5, "reject-route": 6},
	netfilter.UserType:       {"root": 0},
	netfilter.GroupType:      {"root": 0},
}

var dscp = map[string]uint64{
	"cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40, "cs6": 48, "cs7": 56, "df": 0, "be": 0, "lephb": 1, "va": 44, "ef": 46,
	"af11": 10, "af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22, "af31": 26, "af32": 28, "af33": 30, "af41": 34, "af42": 36, "af43": 38,
}

// services are the ports that rules written by hand call by name; a listing
// has numbers unless names were asked for.
var services = map[string]uint64{
	"ftp-data": 20, "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "bootps": 67, "bootpc": 68, "tftp": 69, "http": 80, "kerberos": 88, "pop3": 110,
	"sunrpc": 111, "auth": 113, "ntp": 123, "netbios-ns": 137, "netbios-dgm": 138, "netbios-ssn": 139, "imap2": 143, "imap": 143, "snmp": 161, "snmp-trap": 162, "bgp": 179,
	"ldap": 389, "https": 443, "microsoft-ds": 445, "submissions": 465, "isakmp": 500, "syslog": 514, "dhcpv6-client": 546, "dhcpv6-server": 547, "rtsp": 554, "submission": 587,
	"ldaps": 636, "domain-s": 853, "rsync": 873, "imaps": 993, "pop3s": 995, "openvpn": 1194, "ms-sql-s": 1433, "radius": 1812, "nfs": 2049, "mysql": 3306, "sip": 5060,
	"mdns": 5353, "postgresql": 5432, "xmpp-client": 5222, "http-alt": 8080,
}

// Priority reads the place of a chain at its hook: a number, or a name, or a
// name and what is added to it ("dstnat - 10"). family is nft's.
func Priority(family, hook, word string, offset int) (int, bool) {
	standard := map[string]int{"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}
	if family == "bridge" {
		standard = map[string]int{"dstnat": -300, "filter": -200, "out": 100, "srcnat": 300}
	}
	n, ok := standard[word]
	return n + offset, ok
}
