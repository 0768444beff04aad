package sysctl

// Release is the version of a kernel, major and minor.
type Release struct{ Major, Minor int }

func (r Release) before(major, minor int) bool {
	return r.Major < major || r.Major == major && r.Minor < minor
}

// ipvsFiles is the folder of the settings of IPVS.
const ipvsFiles = "proc/sys/net/ipv4/vs/"

// IPVS is what ipvs mode asks of the kernel (kube-proxy 1.37). The first is the one
// without which nothing works: IPVS leaves connections alone, or their masquerade is
// lost.
func IPVS(strictARP bool, kernel Release) []Setting {
	out := []Setting{
		{File: ipvsFiles + "conntrack", Value: 1},
		{File: ipvsFiles + "expire_nodest_conn", Value: 1},
		{File: ipvsFiles + "expire_quiescent_template", Value: 1},
		{File: "proc/sys/net/ipv4/ip_forward", Value: 1},
	}
	// A new connection from a client port that was used before is delayed by 1 s
	// where the value is 1, until 5.9; with 0 it goes to the old real server, even
	// one of weight 0. Kernels before 4.1 do not have the file.
	if !kernel.before(4, 1) && kernel.before(5, 9) {
		out = append(out, Setting{File: ipvsFiles + "conn_reuse_mode", Value: 0, Lower: Always})
	}
	if strictARP {
		out = append(out,
			Setting{File: "proc/sys/net/ipv4/conf/all/arp_ignore", Value: 1},
			Setting{File: "proc/sys/net/ipv4/conf/all/arp_announce", Value: 2})
	}
	return out
}

// IPVSDefaults are the kernel's own values of what concerns IPVS alone.
func IPVSDefaults() []Setting {
	return []Setting{
		{File: ipvsFiles + "conntrack", Value: 0, Lower: Always},
		{File: ipvsFiles + "expire_nodest_conn", Value: 0, Lower: Always},
		{File: ipvsFiles + "expire_quiescent_template", Value: 0, Lower: Always},
	}
}
