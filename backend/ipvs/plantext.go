package ipvs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"portolan/dataplane"
	"portolan/kernel/ipset"
	"portolan/kernel/ipvs"
)

// PlanText writes a plan for an empty kernel as the input of programs, in sections
// behind a comment line each, in an order in which they can be run: of "ipset restore",
// iptables-restore (ip6tables-restore), "ipvsadm -R" and "ip -batch -".
func (b *Backend) PlanText(p dataplane.Plan) string {
	u, err := b.update(p)
	if err != nil {
		panic("ipvs: a plan of our own cannot be read: " + err.Error())
	}
	var out strings.Builder
	section := func(name string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(&out, "# %s\n%s\n", name, strings.Join(lines, "\n"))
		}
	}
	section("ipset restore", u.setLines())
	in := restoreText{}
	for _, table := range tables {
		in.table(table, u.rules, comes)
	}
	restore := "iptables-restore"
	if b.ipv6() {
		restore = "ip6tables-restore"
	}
	section(restore, strings.Split(strings.TrimSuffix(in.buf.String(), "\n"), "\n"))
	section("ipvsadm -R", u.serverLines())
	section("ip -batch -", u.addressLines())
	return out.String()
}

// setLines is the input of ipset: sets, then all that they hold.
func (u *update) setLines() []string {
	var entries []string
	add := func(id setID, e ipset.Entry) {
		entries = append(entries, "add "+u.b.name(id)+" "+sets[id].typ.Text(e))
	}
	for _, e := range u.enter {
		add(e.set, e.entry)
	}
	for _, addr := range sortedAddrs(u.bind) {
		add(ipvsIPs, ipset.Entry{Addr: addr})
	}
	for _, c := range u.servers {
		for _, id := range memberSets {
			for _, e := range c.now.entries(id) {
				add(id, e)
			}
		}
	}
	slices.Sort(entries)
	var lines []string
	for _, c := range u.sets {
		for _, o := range c.Created {
			lines = append(lines, "create "+o.Body)
		}
	}
	return append(lines, entries...)
}

// serverLines is the input of ipvsadm.
func (u *update) serverLines() []string {
	option := map[ipvs.Protocol]string{ipvs.TCP: "-t", ipvs.UDP: "-u", ipvs.SCTP: "--sctp-service"}
	var lines []string
	for _, c := range u.servers {
		if !c.now.serves() {
			continue
		}
		s := c.now.server
		at := option[s.ID.Protocol] + " " + s.ID.Addr.String()
		line := "-A " + at + " -s " + s.Scheduler
		if s.Persistence > 0 {
			line += fmt.Sprintf(" -p %d", s.Persistence/time.Second)
		}
		if s.Flags&ipvs.SchedulerPort != 0 {
			line += " -b flag-2"
		}
		lines = append(lines, line)
		for _, r := range c.now.reals {
			lines = append(lines, fmt.Sprintf("-a %s -r %v -m -w %d", at, r.Addr, r.Weight))
		}
	}
	return lines
}

// addressLines is the input of ip.
func (u *update) addressLines() []string {
	var lines []string
	if u.device {
		lines = append(lines, "link add "+DeviceName+" type dummy")
	}
	for _, addr := range sortedAddrs(u.bind) {
		lines = append(lines, fmt.Sprintf("address add %s/%d dev %s", addr, addr.BitLen(), DeviceName))
	}
	return lines
}
