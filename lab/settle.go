package lab

import (
	"fmt"
	"net/netip"
	"time"
)

// settleWithin bounds how long a new lab may take to carry packets. It takes
// milliseconds; only a machine that cannot do this at all takes longer.
const settleWithin = 10 * time.Second

// Settle waits until the client and every node reach every pod: links come up,
// neighbours are found and pod networks are made in their own time. A topology
// without a client address of a family is not asked for that family.
func (l *Lab) Settle() error { return l.settle(true) }

// settle leaves out the nodes that reach a pod only by way of another unless
// everybody is asked for.
func (l *Lab) settle(everybody bool) error {
	deadline := time.Now().Add(settleWithin)
	for _, p := range l.pods {
		if len(p.Ports) == 0 {
			continue
		}
		for _, addr := range p.Addrs {
			to := netip.AddrPortFrom(addr, p.Ports[0])
			for _, from := range l.callers(addr) {
				if !everybody && from != l.Client && from != &p.Node.Host {
					continue
				}
				if err := from.reach(to, deadline); err != nil {
					return fmt.Errorf("lab: pod %s: %w", p.Name, err)
				}
			}
		}
	}
	return nil
}

// callers are the client and the nodes, as far as they have an address of the family.
func (l *Lab) callers(like netip.Addr) []*Host {
	var list []*Host
	if l.Client.Addr(like).IsValid() {
		list = append(list, l.Client)
	}
	for _, n := range l.nodes {
		if n.Addr(like).IsValid() {
			list = append(list, &n.Host)
		}
	}
	return list
}

// reach tries an address until a pod answers.
func (h *Host) reach(to netip.AddrPort, deadline time.Time) error {
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		o := h.Dial("tcp", to, 200*time.Millisecond)
		if o.Verdict == Answered {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("from %s to %v: %v", h.Name, to, o)
		}
		<-pause.C
	}
}
