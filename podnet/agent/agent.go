package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"portolan/dataplane"
	"portolan/podnet"
	"portolan/podnet/linux"
)

// Cluster is the other nodes' side of the network.
type Cluster interface {
	// Announce makes annotations those of the own Node, so that peers find it.
	Announce(ctx context.Context, annotations map[string]string) error
	// Up says that pods of the node have a network.
	Up(ctx context.Context) error
}

// Rules is where the masquerade and forward rules of one family go, and how
// they look there. The zero Rules are none.
type Rules struct {
	Kernel dataplane.Kernel
	Render func(podnet.Topology) []dataplane.Object
}

// Options say what Run does.
type Options struct {
	NodeName    string
	Config      podnet.Config
	Annotations podnet.Annotations
	Choice      linux.Choice
	Rules       map[podnet.Family]Rules
	// Masquerade is what subnet.env says of it.
	Masquerade bool
	// SubnetFile and CNIFile are written once the network is there; empty for
	// none.
	SubnetFile, CNIFile string
	Cluster             Cluster
	Log                 *slog.Logger
	// RetryMin is the pause after a first failure; it doubles up to RetryMax.
	RetryMin, RetryMax time.Duration
	// Full is the longest time between two full looks at the kernel.
	Full time.Duration
}

// Agent is the pod network of one node.
type Agent struct {
	options  Options
	families []*family
	nodes    []podnet.Node
	known    bool // nodes is what the cluster has
	self     podnet.Self
	reported map[string]string // problems, by node and family
	ready    atomic.Bool
	up       bool
}

// family is the part of one IP family.
type family struct {
	is       podnet.Family
	topology podnet.Topology
	peers    map[string]bool // those that were set
	network  *linux.Network  // once the external interface is known
	sync     *dataplane.Sync
	rules    *dataplane.Sync // nil for none
}

// New returns an Agent that has done nothing yet.
func New(o Options) *Agent {
	a := &Agent{options: o, reported: map[string]string{}}
	for _, f := range o.Config.Families() {
		h := &family{is: f, peers: map[string]bool{}}
		if r := o.Rules[f]; r.Kernel != nil {
			h.rules = dataplane.NewSync(r.Kernel)
		}
		a.families = append(a.families, h)
	}
	return a
}

// Ready tells whether the network is there, and subnet.env written.
func (a *Agent) Ready() bool { return a.ready.Load() }

// Run follows the Nodes that come over nodes, whole lists each, until ctx ends,
// which is no error.
func (a *Agent) Run(ctx context.Context, nodes <-chan []podnet.Node) error {
	defer a.close()
	changed := make(chan struct{}, 1) // by others
	for _, f := range a.families {
		if r := a.options.Rules[f.is]; r.Kernel != nil {
			go relay(ctx, r.Kernel.Changes(ctx), changed)
		}
	}
	p := newPace(a.options)
	for {
		full := false
		select {
		case <-ctx.Done():
			return nil
		case a.nodes = <-nodes:
			a.known = true
		case <-p.over():
			p.wake()
			continue
		case <-p.look(changed):
			full = true
		case <-p.due():
			full = true
		}
		if !a.known {
			continue
		}
		began := time.Now()
		err := a.step(ctx, full, changed)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			a.options.Log.Error("pod network", "error", err, "next try in", p.pause)
		}
		p.done(began, err)
	}
}

func (a *Agent) close() {
	for _, f := range a.families {
		if f.network != nil {
			f.network.Close()
		}
	}
}

// relay passes notices on until ctx ends; several that wait are one.
func relay(ctx context.Context, from <-chan dataplane.Notice, to chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-from:
			select {
			case to <- struct{}{}:
			default:
			}
		}
	}
}

// step brings everything to what the newest Nodes ask for. One family's failure
// does not hold back the other.
func (a *Agent) step(ctx context.Context, full bool, changed chan<- struct{}) error {
	own, err := a.own()
	if err != nil {
		return err
	}
	self, err := linux.Discover(a.options.Choice, a.options.Annotations, own, a.options.Config.Families())
	if err != nil {
		return err
	}
	if self.Device != a.self.Device {
		a.options.Log.Info("external interface", "interface", self.Device, "mtu", self.MTU, "ipv4", self.V4.Addr, "ipv6", self.V6.Addr)
	}
	a.self = a.withMACs(self, own)
	errs := []error{a.announce(ctx, own)}
	for _, f := range a.families {
		errs = append(errs, a.write(ctx, f, own, full, changed))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return a.finish(ctx, own)
}

func (a *Agent) own() (podnet.Node, error) {
	for _, n := range a.nodes {
		if n.Name == a.options.NodeName {
			return n, nil
		}
	}
	return podnet.Node{}, fmt.Errorf("no Node has the name %q of this host: --hostname-override or the variable NODE_NAME sets the name that kubelet registered", a.options.NodeName)
}

// withMACs gives the vxlan devices their addresses: those that the node announced
// last, else those that devices have, else new ones.
func (a *Agent) withMACs(self podnet.Self, own podnet.Node) podnet.Self {
	choose := func(f podnet.Family, before podnet.MAC) podnet.MAC {
		vni := a.options.Config.Backend.VNI
		if m, ok := a.options.Annotations.OwnMAC(own, f, vni); ok {
			return m
		}
		if before != (podnet.MAC{}) {
			return before
		}
		if m, ok := linux.DeviceMAC(podnet.DeviceOf(f, vni)); ok {
			return m
		}
		return randomMAC()
	}
	if a.options.Config.Backend.Type == podnet.VXLAN {
		self.V4.MAC, self.V6.MAC = choose(podnet.IPv4, a.self.V4.MAC), choose(podnet.IPv6, a.self.V6.MAC)
	}
	return self
}

// announce writes the annotations unless the Node has them.
func (a *Agent) announce(ctx context.Context, own podnet.Node) error {
	want := a.options.Annotations.Announce(a.options.Config, a.self, own)
	for name, value := range want {
		if own.Annotations[name] != value {
			if err := a.options.Cluster.Announce(ctx, want); err != nil {
				return fmt.Errorf("announce node %s: %w", own.Name, err)
			}
			a.options.Log.Info("announced", "node", own.Name, "backend", string(a.options.Config.Backend.Type))
			return nil
		}
	}
	return nil
}

// write brings one family's kernel to what is wanted.
func (a *Agent) write(ctx context.Context, f *family, own podnet.Node, full bool, changed chan<- struct{}) error {
	topology, problems, err := podnet.Given{Config: a.options.Config, Annotations: a.options.Annotations, Self: a.self, Own: own, Nodes: a.nodes}.Resolve(f.is)
	a.report(f.is, problems)
	if err != nil {
		return err
	}
	if err := topology.Check(); err != nil {
		return err
	}
	if f.network == nil || f.topology.Self.Device != topology.Self.Device {
		if err := a.open(ctx, f, topology, changed); err != nil {
			return err
		}
	}
	f.topology = topology
	f.set(topology)
	errNetwork := a.apply(ctx, f.sync, full, f.is, "links and routes")
	var errRules error
	if f.rules != nil {
		f.rules.Set(dataplane.Owner{}, a.options.Rules[f.is].Render(topology))
		errRules = a.apply(ctx, f.rules, full, f.is, "rules")
	}
	return errors.Join(errNetwork, errRules)
}

// open begins with an external interface.
func (a *Agent) open(ctx context.Context, f *family, t podnet.Topology, changed chan<- struct{}) error {
	network, err := linux.Open(f.is, a.options.Config.NetworkOf(f.is), t.Self.Device)
	if err != nil {
		return err
	}
	if f.network != nil {
		f.network.Close()
	}
	f.network, f.sync, f.peers = network, dataplane.NewSync(network), map[string]bool{}
	go relay(ctx, network.Changes(ctx), changed)
	return nil
}

// set asks for what the topology needs, and no longer for peers that went.
func (f *family) set(t podnet.Topology) {
	f.sync.Set(dataplane.Owner{}, podnet.Base(t))
	peers := map[string]bool{}
	for _, p := range t.Peers {
		peers[p.Name] = true
		f.sync.Set(podnet.OwnerOf(p), podnet.Render(t, p))
	}
	for name := range f.peers {
		if !peers[name] {
			f.sync.Remove(name)
		}
	}
	f.peers = peers
}

// apply writes what differs as far as is known, or whatever a full look finds.
func (a *Agent) apply(ctx context.Context, s *dataplane.Sync, full bool, f podnet.Family, what string) error {
	write := s.Apply
	if full {
		write = s.Reconcile
	}
	r, err := write(ctx)
	if r.Writes > 0 && err == nil {
		a.options.Log.Info("written", "what", what, "family", f, "created", r.Created, "replaced", r.Replaced, "deleted", r.Deleted)
	}
	errs := []error{err}
	for _, rejection := range r.Rejected {
		errs = append(errs, rejection.Err)
	}
	return errors.Join(errs...)
}

// report logs problems when they come and go.
func (a *Agent) report(f podnet.Family, problems []podnet.Problem) {
	now := map[string]string{}
	for _, p := range problems {
		key := f.String() + " " + p.Node
		now[key] = p.Err.Error()
		if a.reported[key] != now[key] {
			a.options.Log.Warn("a node cannot take part in the pod network", "family", f, "node", p.Node, "reason", p.Err)
		}
		a.reported[key] = now[key]
	}
	for key := range a.reported {
		if now[key] == "" && len(key) > 5 && key[:4] == f.String() {
			a.options.Log.Info("a node can take part in the pod network again", "node", key[5:], "family", f)
			delete(a.reported, key)
		}
	}
}

// finish writes the files for the CNI plugins and says that the network is up.
func (a *Agent) finish(ctx context.Context, own podnet.Node) error {
	var topologies []podnet.Topology
	for _, f := range a.families {
		topologies = append(topologies, f.topology)
	}
	if err := writeFile(a.options.SubnetFile, []byte(podnet.SubnetEnv(topologies, a.options.Masquerade))); err != nil {
		return err
	}
	conf, err := podnet.CNIConfig(topologies, a.options.Masquerade)
	if err != nil {
		return err
	}
	if err := writeFile(a.options.CNIFile, conf); err != nil {
		return err
	}
	a.ready.Store(true)
	if own.NetworkUp || a.up {
		return nil
	}
	if err := a.options.Cluster.Up(ctx); err != nil {
		return fmt.Errorf("say that the network of node %s is up: %w", own.Name, err)
	}
	a.up = true
	return nil
}
