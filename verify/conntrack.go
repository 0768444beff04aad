package verify

import (
	"fmt"
)

// checkConntrack: the table of connections has room.
func checkConntrack(w *world) (out []Finding) {
	count, ok := w.number("net.netfilter.nf_conntrack_count")
	most, ok2 := w.number("net.netfilter.nf_conntrack_max")
	if ok && ok2 && most > 0 && 10*count >= 9*most {
		f := Finding{
			Code: ConntrackFull, Severity: Warning, Object: "net.netfilter.nf_conntrack_max", Owner: kernelOwner,
			Actual:   fmt.Sprintf("%d of %d connections are in the table", count, most),
			Expected: "less than 90 %: a full table drops new connections",
			Fix:      fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d, or conntrack.maxPerCore of the proxy; look who makes so many connections (portolan top)", 2*most),
			Link:     "https://github.com/kubernetes/kubernetes/issues/18604",
		}
		if count >= most {
			f.Severity = Error
		}
		out = append(out, f)
	}
	if c := w.host.Conntrack; c.InsertFailed > 0 || c.Drop > 0 {
		out = append(out, Finding{
			Code: ConntrackFails, Severity: Info, Object: "conntrack", Owner: Owner{"kernel", "it counts them"},
			Actual:   fmt.Sprintf("since the host came up %d packets were lost because their connection could not be entered, %d because it could not be made", c.InsertFailed, c.Drop),
			Expected: "none; DNS over UDP suffers first, by time-outs of 5 s",
			Fix:      "watch whether the numbers grow (conntrack -S); NodeLocal DNSCache, or single-request-reopen in resolv.conf, helps DNS",
			Link:     "https://github.com/kubernetes/kubernetes/issues/56903",
		})
	}
	return out
}

func (w *world) number(name string) (n uint64, ok bool) {
	if v, given := w.host.Sysctls[name]; given {
		_, err := fmt.Sscanf(v, "%d", &n)
		return n, err == nil
	}
	return 0, false
}
