package sysctl

import (
	"strconv"
	"strings"
	"time"
)

// Conntrack is what to ask of the kernel's connection tracking; 0 leaves what is
// there (kube-proxy 1.37).
type Conntrack struct {
	MaxPerCore, Min              int // flows
	TCPEstablished, TCPCloseWait time.Duration
	UDP, UDPStream               time.Duration
	TCPBeLiberal                 bool
}

// mostByCores bounds what MaxPerCore may ask for; Min is not bounded.
const mostByCores = 1 << 20

// Defaults of kube-proxy and of the kernel (6.x) for the timeouts that kube-proxy
// sets when nobody asks.
const (
	proxyEstablished, kernelEstablished = 24 * time.Hour, 5 * 24 * time.Hour
	proxyCloseWait, kernelCloseWait     = time.Hour, time.Minute
)

// Settings returns what to write for a machine with that many CPUs, in the order
// in which it is to be written. Sizes are only raised. A timeout that is not
// kube-proxy's default was asked for and is written as it is; one that is does
// not lower what an admin chose.
func (c Conntrack) Settings(cpus int) []Setting {
	const dir = "proc/sys/net/netfilter/nf_conntrack_"
	var out []Setting
	if c.MaxPerCore > 0 {
		most := max(min(c.MaxPerCore*cpus, mostByCores), c.Min)
		out = append(out,
			Setting{File: dir + "max", Value: most},
			Setting{File: "sys/module/nf_conntrack/parameters/hashsize", Value: most / 4})
	}
	timeout := func(name string, d, proxy, kernel time.Duration) {
		if d > 0 {
			s := Setting{File: dir + name, Value: seconds(d), Lower: Always}
			if d == proxy {
				s.Lower, s.Default = FromDefault, seconds(kernel)
			}
			out = append(out, s)
		}
	}
	timeout("tcp_timeout_established", c.TCPEstablished, proxyEstablished, kernelEstablished)
	timeout("tcp_timeout_close_wait", c.TCPCloseWait, proxyCloseWait, kernelCloseWait)
	if c.TCPBeLiberal {
		out = append(out, Setting{File: dir + "tcp_be_liberal", Value: 1})
	}
	timeout("udp_timeout", c.UDP, 0, 0)
	timeout("udp_timeout_stream", c.UDPStream, 0, 0)
	return out
}

func seconds(d time.Duration) int { return int(d / time.Second) }

// CountCPUs counts a list such as "0-3,5", the form of
// /sys/devices/system/cpu/online. A list that cannot be read counts 0.
func CountCPUs(list string) int {
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return 0
		}
		to := from
		if isRange {
			if to, err = strconv.Atoi(last); err != nil || to < from {
				return 0
			}
		}
		n += to - from + 1
	}
	return n
}
