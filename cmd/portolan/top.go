package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"portolan/config"
	"portolan/conntrack"
	kernel "portolan/kernel/conntrack"
	"portolan/service"
	"portolan/source/kube"
)

// topFlags are the flags of top as they were given.
type topFlags struct {
	config    *config.Flags
	output    string
	interval  time.Duration
	once      bool
	endpoints int
}

func newTopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top [flags] [NAMESPACE/SERVICE]",
		Short: "Show what each Service and endpoint carries through this node",
		Long: `Top reads the connections that the kernel tracks in this network namespace, and
counts them by Service port and endpoint: how many there are, how many an endpoint
would have if all were balanced anew, how many begin each second, got no answer yet,
or lead nowhere. It changes nothing. Services come from --manifests or an API
server, as for "portolan proxy". Needs root.

An endpoint is chosen once, with the first packet of a connection. Long connections
stay with it when others are added; "portolan rebalance" can do something about that.

What the columns and the fields of -o json mean is in docs/top.md.

Exit codes: 0 done, 2 usage, or it cannot tell.`,
		Example: `  portolan top --kubeconfig /etc/kubernetes/kubelet.conf
  portolan top --manifests /etc/portolan --once -o json default/web`,
		Args: takes(0, 1),
	}
	f := topFlags{config: addLiveFlags(cmd)}
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "text or json")
	cmd.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "time from one look to the next, in which new connections are counted")
	cmd.Flags().BoolVar(&f.once, "once", false, "end after one interval")
	cmd.Flags().IntVar(&f.endpoints, "endpoints", 10, "most endpoints of a Service port in the text, those that are most out of balance; 0 for all")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return runTop(cmd, f, args) }
	return cmd
}

// addLiveFlags defines the flags of commands that hold what is in the kernel of this
// host against Services.
func addLiveFlags(cmd *cobra.Command) *config.Flags {
	flags := addPlanFlags(cmd)
	for _, name := range []string{"kubeconfig", "master"} {
		cmd.Flags().Lookup(name).Hidden = false
	}
	return flags
}

// runTop counts and prints at each interval.
func runTop(cmd *cobra.Command, f topFlags, args []string) error {
	var only *service.Name
	if len(args) > 0 {
		name, err := parseServiceName(args[0])
		if err != nil {
			return fmt.Errorf("top: %w", err)
		}
		only = &name
	}
	switch {
	case f.output != "text" && f.output != "json":
		return fmt.Errorf("top: -o %s is neither text nor json", f.output)
	case f.interval <= 0:
		return fmt.Errorf("top: --interval %v: must be more than 0, for example 2s", f.interval)
	case f.endpoints < 0:
		return fmt.Errorf("top: --endpoints %d: must not be less than 0, which is all", f.endpoints)
	case os.Geteuid() != 0:
		return errors.New("top: to read the connections of the kernel needs root")
	}
	n, err := followNode(cmd, f.config)
	if err != nil {
		return err
	}
	defer n.stop()
	if only != nil && n.newest.Load().Service(*only) == nil {
		return fmt.Errorf("top: no Service %s with a cluster IP is known: look at its name, and at what --manifests or the API server has", only)
	}
	begun, err := hearNew(n.ctx)
	if err != nil {
		return err
	}
	return n.each(f, func(looked time.Duration) error {
		v, err := n.look(begun, looked)
		if err != nil {
			return err
		}
		if only != nil {
			v.loads = slices.DeleteFunc(v.loads, func(l conntrack.Load) bool { return l.Name.Service != *only })
		}
		return v.print(cmd.OutOrStdout(), f)
	})
}

func parseServiceName(text string) (service.Name, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return service.Name{}, fmt.Errorf("%q is not NAMESPACE/SERVICE", text)
	}
	return service.Name{Namespace: namespace, Name: name}, nil
}

// liveNode is the kernel's connections beside what the cluster asks for.
type liveNode struct {
	ctx    context.Context
	stop   context.CancelFunc
	table  *kernel.Table
	newest atomic.Pointer[service.Snapshot]
	failed chan error // what ended the following of Services
}

// followNode returns when Services are known.
func followNode(cmd *cobra.Command, flags *config.Flags) (*liveNode, error) {
	c, err := configured(cmd, flags)
	if err != nil {
		return nil, err
	}
	settings, err := nodeSettings(c)
	if err != nil {
		return nil, err
	}
	settings.NodePorts.Localhost = settings.NodePorts.AllowsLocalhost()
	if len(c.Options.Manifests) > 0 {
		if _, refused := loadManifests(cmd.Context(), c, settings, cmd.ErrOrStderr()); refused {
			return nil, errors.New("connections of what was refused would count as stale")
		}
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelError}))
	input, err := newInput(c, kube.NewCluster(settings), settings.NodeName, log)
	if err != nil {
		return nil, err
	}
	n := &liveNode{failed: make(chan error, 1)}
	if n.table, err = kernel.Open(); err != nil {
		return nil, err
	}
	n.ctx, n.stop = context.WithCancel(cmd.Context())
	known := make(chan struct{})
	var once sync.Once
	go func() {
		n.failed <- input.follow(n.ctx, watchAddresses(n.ctx, settings, log), func(s *service.Snapshot) {
			n.newest.Store(s)
			once.Do(func() { close(known) })
		})
	}()
	select {
	case <-known:
		return n, nil
	case err := <-n.failed:
		n.stop()
		return nil, errors.Join(errors.New("no Services are known"), err)
	}
}

// each looks after each interval, until the command ends.
func (n *liveNode) each(f topFlags, look func(time.Duration) error) error {
	ticks := time.NewTicker(f.interval)
	defer ticks.Stop()
	last := time.Now()
	for {
		select {
		case <-n.ctx.Done():
			return nil
		case err := <-n.failed:
			if n.ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("following Services ended: %w", err)
		case now := <-ticks.C:
			if err := look(now.Sub(last)); err != nil || f.once {
				return err
			}
			last = now
		}
	}
}

// look counts all connections, and those that began meanwhile.
func (n *liveNode) look(begun *newFlowCounts, during time.Duration) (topView, error) {
	v := topView{at: time.Now(), during: during}
	local, err := localAddresses()
	if err != nil {
		return v, err
	}
	fresh, lost := begun.take()
	v.lost, v.deaf = lost, begun.deaf
	s := n.newest.Load()
	for _, family := range []service.Family{service.IPv4, service.IPv6} {
		count := conntrack.NewCount(s, family, local)
		for flow, err := range n.table.Flows(n.ctx, kernel.Filter{IPv6: family == service.IPv6}) {
			if err != nil {
				return v, err
			}
			count.Add(flow)
		}
		for flow, times := range fresh {
			count.AddNew(flow, times)
		}
		v.loads = append(v.loads, count.Loads()...)
	}
	v.entries, v.most, _ = connectionsTracked() // 0 where the kernel does not say
	return v, nil
}

const netfilterFile = "proc/sys/net/netfilter/nf_conntrack_"

// newFlowCounts are connections that began, by where they were sent and where they
// were led to; the rest of each flow is left empty.
type newFlowCounts struct {
	deaf bool // the kernel does not tell

	mu    sync.Mutex
	times map[kernel.Flow]int
	lost  bool
}

// hearNew counts connections that begin, until ctx ends.
func hearNew(ctx context.Context) (*newFlowCounts, error) {
	listener, err := kernel.Listen()
	if err != nil {
		return nil, err
	}
	c := &newFlowCounts{times: map[kernel.Flow]int{}}
	if events, err := host.Read(netfilterFile + "events"); err == nil && events == 0 {
		c.deaf = true
	}
	go func() {
		err := listener.Hear(ctx, c.note)
		if ctx.Err() == nil && err != nil {
			c.note(kernel.Flow{}, err)
		}
	}()
	return c, nil
}

func (c *newFlowCounts) note(f kernel.Flow, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.lost = true
		return
	}
	if f.Translated() {
		var nobody netip.AddrPort
		c.times[kernel.Flow{Proto: f.Proto, Orig: kernel.Tuple{Src: nobody, Dst: f.Orig.Dst}, Reply: kernel.Tuple{Src: f.Reply.Src, Dst: nobody}}]++
	}
}

// take returns what began since it was asked last, and whether some was missed.
func (c *newFlowCounts) take() (times map[kernel.Flow]int, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	times, lost = c.times, c.lost
	c.times, c.lost = map[kernel.Flow]int{}, false
	return times, lost
}

// isTerminal tells whether somebody looks at a file, so that it may be cleared.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
