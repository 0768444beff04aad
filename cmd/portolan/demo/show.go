package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"portolan/lab"
)

const (
	tries    = 30 // of three endpoints one stays silent in one of 60,000 runs
	patience = 2 * time.Second
)

// ErrUnexpected tells that a row of the table is not what it should be.
var ErrUnexpected = errors.New("lab: not every call ended as it should")

// Network prints the nodes and pods.
func (p Plan) Network(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, n := range p.Topology.Nodes {
		fmt.Fprintf(table, "  %s\t%s\n", n.Name, join(n.Addrs))
		for _, pod := range p.Topology.Pods {
			if pod.Node == n.Name {
				fmt.Fprintf(table, "    pod %s\t%s\n", pod.Name, join(pod.Addrs))
			}
		}
	}
	fmt.Fprintf(table, "  client\t%s\n", join(p.Topology.Client))
	table.Flush()
	for _, note := range p.Notes {
		fmt.Fprintf(w, "  note: %s\n", note)
	}
}

func join(addrs []netip.Addr) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

// Show makes the calls and prints a row for each. It ends early when ctx does. The
// error is ErrUnexpected when a verdict was not the one that was wanted.
func (p Plan) Show(ctx context.Context, l *lab.Lab, w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintf(table, "SERVICE\tFROM\tTO\tVERDICT\tWHO ANSWERED\tSOURCE THE POD SAW\n")
	var result error
	for _, c := range p.Calls {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		row := c.make(ctx, l)
		verdict := row.verdict
		if c.Want != "" && verdict != c.Want {
			verdict += ", want " + c.Want
			result = ErrUnexpected
		}
		fmt.Fprintf(table, "%s\t%s\t%s %v\t%s\t%s\t%s\n", c.What, c.From, c.Proto, c.To, verdict, counted(row.pods), strings.Join(row.seen, ", "))
	}
	return result
}

// row is what several tries of a call saw.
type row struct {
	verdict string
	pods    map[string]int
	seen    []string
}

// make calls several times, and sums up who answered and whom they saw.
func (c Call) make(ctx context.Context, l *lab.Lab) row {
	r := row{pods: map[string]int{}}
	from := host(l, c.From)
	for i := 0; i < tries && ctx.Err() == nil; i++ {
		o := from.Dial(c.Proto, c.To, patience)
		verdict := o.Verdict.String()
		if o.Verdict == lab.Failed {
			verdict = o.String()
		}
		if i > 0 && verdict != r.verdict {
			r.verdict = "at times " + verdict
			break
		}
		r.verdict = verdict
		if o.Verdict != lab.Answered {
			break // the others would be as long in coming
		}
		r.pods[o.Pod]++
		if text := seen(l, o); !slices.Contains(r.seen, text) {
			r.seen = append(r.seen, text)
		}
	}
	slices.Sort(r.seen)
	return r
}

// seen is the source address with whose it is.
func seen(l *lab.Lab, o lab.Outcome) string {
	addr := o.Seen.Addr()
	if addr == o.Local.Addr() {
		return fmt.Sprintf("%v (the caller's own)", addr)
	}
	for _, n := range l.Nodes() {
		if slices.Contains(n.Bridge, addr) {
			return fmt.Sprintf("%v (bridge of %s)", addr, n.Name)
		}
		if slices.Contains(n.Bridge, addr.Next()) { // the first of the node's range
			return fmt.Sprintf("%v (vxlan device of %s)", addr, n.Name)
		}
		if slices.Contains(n.Addrs, addr) {
			return fmt.Sprintf("%v (%s)", addr, n.Name)
		}
	}
	return addr.String()
}

// counted lists the pods that answered, with how often.
func counted(pods map[string]int) string {
	if len(pods) == 0 {
		return "-"
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		out = append(out, fmt.Sprintf("%s %dx", name, pods[name]))
	}
	return strings.Join(out, ", ")
}

// host finds a node, a pod or the client by its name.
func host(l *lab.Lab, name string) *lab.Host {
	if name == "client" {
		return l.Client
	}
	if n := l.Node(name); n != nil {
		return &n.Host
	}
	if p := l.Pod(name); p != nil {
		return &p.Host
	}
	panic("demo: nobody is called " + name) // our own plan
}
