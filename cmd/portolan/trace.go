package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
	"portolan/trace/counters"
	"portolan/trace/explain"
)

// traceFlags are the flags of trace as they were given.
type traceFlags struct {
	src, dst, proto string
	in, hook, mark  string
	uid, gid        string
	local           bool
	where           hostFlags
	manifests       []string
	output          string
	counters        string
	dumps           []string // NODE=PATH
	at              string
}

func newTraceCommand() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "trace --src IP[:PORT] --dst IP[:PORT] [flags]",
		Short: "Follow one packet through the rules of this host, or of a dump, and explain every step",
		Long: `Trace follows a packet hook by hook: which rules match, what they change, how it
is routed, where it ends, and how the answer comes back. Without --rules it
reads the live kernel of the current network namespace. --rules takes files of
iptables-save, iptables -S, iptables -L -nv, nft list ruleset (text and JSON),
ipset save, ipvsadm -Ln and -Sn, conntrack -L, ip addr, ip route, route -n, ip
rule, sysctl -a, recognised by content; together they make one host. --host describes what is not at hand.

--dump NODE=PATH, once for each node, follows the packet from node to node, over plain
routes and vxlan, and the answer back; --at says which node it comes to first where
its source does not.

Random choices branch and carry their share. What cannot be known makes the
answer uncertain and says why.

Exit codes: 0 with an answer, 1 when the packet is dropped, rejected or lost (with
--dump also when its answer is), 2 when it cannot tell.`,
		Example: `  portolan trace --src 10.244.0.9 --dst 10.96.0.10:53 --proto udp
  portolan trace --src 192.0.2.1 --dst 172.22.7.89:31532 --in eth0 --rules node.save --host node.yaml
  portolan trace --src 192.0.2.1 --dst 172.22.7.89:31532 --dump node-1=dump-1 --dump node-2=dump-2
  portolan trace --counters before.txt after.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case f.counters != "" && len(args) != 1:
				return fmt.Errorf("trace: --counters takes two files: --counters BEFORE AFTER")
			case f.counters == "" && len(args) > 0:
				return fmt.Errorf("trace: unexpected argument %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.counters != "" {
				return runCounters(cmd, f, args[0])
			}
			if len(f.dumps) > 0 {
				return runTraceAcross(cmd, f)
			}
			if f.at != "" {
				return errors.New("trace: --at NODE is for several nodes: name them with --dump NODE=PATH")
			}
			return runTrace(cmd, f)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func (f *traceFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.src, "src", "", "source `IP[:PORT]`")
	fl.StringVar(&f.dst, "dst", "", "destination `IP[:PORT]`")
	fl.StringVar(&f.proto, "proto", "", "tcp, udp, sctp or icmp (default tcp, or icmp when --dst has no port)")
	fl.StringVar(&f.in, "in", "", "interface the packet arrives by")
	fl.BoolVar(&f.local, "local", false, "a process of this host sends the packet")
	fl.StringVar(&f.hook, "hook", "", "enter at prerouting or output, whoever made the packet")
	fl.StringVar(&f.mark, "mark", "", "mark of the packet, decimal or 0x")
	fl.StringVar(&f.uid, "uid", "", "user of the process that sends the packet, a number, for -m owner and meta skuid")
	fl.StringVar(&f.gid, "gid", "", "its group, a number")
	f.where.add(fl)
	fl.StringArrayVar(&f.manifests, "manifests", nil, "`PATH` of manifests to take Service names from (repeatable)")
	fl.StringArrayVar(&f.dumps, "dump", nil, "`NODE=PATH` of the dump of one of several nodes (repeatable)")
	fl.StringVar(&f.at, "at", "", "with --dump, the `NODE` that the packet comes to first")
	fl.StringVarP(&f.output, "output", "o", "text", "text, json or dot")
	fl.StringVar(&f.counters, "counters", "", "compare the counters of two dumps: --counters `BEFORE` AFTER")
}

// runTrace answers for one host, or over several.
func runTrace(cmd *cobra.Command, f traceFlags) error {
	flow, note, err := f.flow()
	if err != nil {
		return err
	}
	if f.output != "text" && f.output != "json" && f.output != "dot" {
		return fmt.Errorf("trace: -o %s is neither text, json nor dot", f.output)
	}
	host, err := f.where.read(cmd.Context())
	if err != nil {
		return err
	}
	if err := checkInterface(host, f.in); err != nil {
		return err
	}
	opt := trace.Options{Reply: true}
	if len(f.manifests) > 0 {
		if opt.Names, err = nameChains(cmd.Context(), f.manifests); err != nil {
			return fmt.Errorf("trace: naming chains: %w", err)
		}
	}
	t := trace.New(host, opt)
	a := t.Trace(flow)
	if note != "" {
		a.Assumptions = append([]string{note}, a.Assumptions...)
	}
	a.Assumptions = append(a.Assumptions, host.Warnings...)
	out := explain.Text(t, a)
	switch f.output {
	case "json":
		b, err := explain.JSON(t, a)
		if err != nil {
			return err
		}
		out = string(b)
	case "dot":
		out = explain.Dot(t, a)
	}
	if _, err := fmt.Fprint(cmd.OutOrStdout(), out); err != nil {
		return fmt.Errorf("trace: writing the answer: %w", err)
	}
	return traceExit(a)
}

// checkInterface refuses a name that the host does not have, where its interfaces are
// known: a packet that arrives nowhere would be answered for all the same.
func checkInterface(host *netfilter.Host, name string) error {
	if name == "" || !host.Have.Interfaces || host.Interface(name) != nil {
		return nil
	}
	var names []string
	for _, in := range host.Interfaces {
		names = append(names, in.Name)
	}
	return fmt.Errorf("trace: --in %s: the host has no such interface; it has %s", name, strings.Join(names, ", "))
}

// traceExit is bad news when some packets are lost, and cannot tell when what
// is not known decides between different ends.
func traceExit(a trace.Answer) error {
	lost, ends := false, map[string]bool{}
	doubt := false
	for _, o := range a.Outcomes {
		if o.Share.Sign() == 0 {
			continue
		}
		if o.Verdict == trace.Unknown {
			return exitError{code: exitCannotTell}
		}
		lost = lost || o.Verdict.Lost()
		doubt = doubt || !o.Certain
		ends[o.Verdict.String()+" "+o.Dst.String()+" "+strconv.Itoa(int(o.DstPort))] = true
	}
	switch {
	case doubt && len(ends) > 1:
		return exitError{code: exitCannotTell}
	case lost:
		return exitError{code: exitBadNews}
	}
	return nil
}

// flow makes the flow of the flags; note is an assumption it had to make.
func (f traceFlags) flow() (flow trace.Flow, note string, err error) {
	if f.src == "" || f.dst == "" {
		return flow, "", errors.New("trace: --src and --dst are needed, for example --src 10.244.0.9 --dst 10.96.0.10:53")
	}
	if flow.Src, flow.SrcPort, err = addrPort("--src", f.src); err != nil {
		return flow, "", err
	}
	if flow.Dst, flow.DstPort, err = addrPort("--dst", f.dst); err != nil {
		return flow, "", err
	}
	if flow.Src.Is4() != flow.Dst.Is4() {
		return flow, "", fmt.Errorf("trace: --src %s and --dst %s are of different IP families", f.src, f.dst)
	}
	proto := strings.ToLower(f.proto)
	switch {
	case proto == "" && flow.DstPort == 0:
		proto, note = "icmp", "--dst has no port, so the packet is an ICMP echo request"
	case proto == "":
		proto = "tcp"
	}
	switch proto {
	case "tcp", "udp", "sctp":
	case "icmp", "icmpv6":
		proto = "icmp"
		if flow.Dst.Is6() {
			proto = "icmpv6"
		}
		if flow.SrcPort != 0 || flow.DstPort != 0 {
			return flow, "", errors.New("trace: icmp has no ports")
		}
	default:
		return flow, "", fmt.Errorf("trace: --proto %s is neither tcp, udp, sctp nor icmp", f.proto)
	}
	flow.Proto, _ = netfilter.ProtoByName(proto)
	flow.In, flow.Local = f.in, f.local
	if flow.Hook, err = entryHook(f.hook); err != nil {
		return flow, "", err
	}
	if f.in != "" && (f.local || flow.Hook == netfilter.Output) {
		return flow, "", errors.New("trace: a packet that arrives --in an interface is not sent by this host")
	}
	if f.local && flow.Hook == netfilter.Prerouting {
		return flow, "", errors.New("trace: a --local packet does not enter at prerouting")
	}
	if f.mark != "" {
		n, err := strconv.ParseUint(f.mark, 0, 32)
		if err != nil {
			return flow, "", fmt.Errorf("trace: --mark %s is no number of 32 bits", f.mark)
		}
		flow.Mark = uint32(n)
	}
	if flow.UID, err = sender("--uid", f.uid); err == nil {
		flow.GID, err = sender("--gid", f.gid)
	}
	return flow, note, err
}

// entryHook is where the packet enters, NoHook for "".
func entryHook(name string) (netfilter.Hook, error) {
	switch name {
	case "":
		return netfilter.NoHook, nil
	case "prerouting":
		return netfilter.Prerouting, nil
	case "output":
		return netfilter.Output, nil
	}
	return netfilter.NoHook, fmt.Errorf("trace: --hook %s is neither prerouting nor output", name)
}

// sender reads the number of a user or a group, nil for "".
func sender(flag, text string) (*uint32, error) {
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("trace: %s %s is no number: names of users and groups are those of another file system", flag, text)
	}
	return new(uint32(n)), nil
}

func addrPort(flag, s string) (netip.Addr, uint16, error) {
	ap, err := netip.ParseAddrPort(s)
	if a, bare := netip.ParseAddr(strings.Trim(s, "[]")); bare == nil {
		ap, err = netip.AddrPortFrom(a, 0), nil
	} else if err == nil && ap.Port() == 0 {
		return netip.Addr{}, 0, fmt.Errorf("trace: %s %s: port 0 is none; leave it out for a packet without ports", flag, s)
	}
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("trace: %s %s is neither IP nor IP:PORT (IPv6 with a port is [IP]:PORT)", flag, s)
	}
	if zone := ap.Addr().Zone(); zone != "" {
		return netip.Addr{}, 0, fmt.Errorf("trace: %s %s: leave out %%%s; --in names the interface that a packet arrives by", flag, s, zone)
	}
	return ap.Addr().Unmap(), ap.Port(), nil
}

// runCounters compares two dumps; it is bad news when the sums are wrong.
func runCounters(cmd *cobra.Command, f traceFlags, after string) error {
	read := func(path string) (*netfilter.Host, error) {
		texts, err := detect.Read(path)
		if err != nil {
			return nil, fmt.Errorf("trace: --counters: %w", err)
		}
		return detect.Host(detect.Options{Table: f.where.table}, texts...)
	}
	a, err := read(f.counters)
	if err != nil {
		return err
	}
	b, err := read(after)
	if err != nil {
		return err
	}
	rep := counters.Diff(a, b)
	if f.output == "json" {
		err = counters.WriteJSON(cmd.OutOrStdout(), rep)
	} else {
		_, err = fmt.Fprint(cmd.OutOrStdout(), counters.Text(rep))
	}
	if err != nil {
		return fmt.Errorf("trace: writing the comparison: %w", err)
	}
	for _, s := range rep.Sums {
		if !s.OK {
			return exitError{code: exitBadNews}
		}
	}
	return nil
}
