package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portolan/healthcheck"
	"portolan/podnet"
	"portolan/podnet/agent"
	"portolan/podnet/linux"
	"portolan/source/apiserver"
	"portolan/source/manifests"
	"portolan/source/podnodes"
)

// podnetFlags are flannel's where it has the same.
type podnetFlags struct {
	nodeName                   string
	manifests                  []string
	kubeconfig, master         string
	netConfig, prefix          string
	subnetMgr                  bool
	masquerade, noFullyRandom  bool
	forward                    bool
	ifaces, patterns           []string
	canReach                   string
	publicIP, publicIPv6       string
	subnetFile, cniFile        string
	healthzIP                  string
	healthzPort, resyncSeconds int
	setUp, cleanup             bool
	verbosity                  int
}

func newPodnetCommand() *cobra.Command {
	f := &podnetFlags{}
	cmd := &cobra.Command{
		Use:   "podnet",
		Short: "Connect the pods of this node with those of the others",
		Long: `Keeps this node's part of a pod network over vxlan or plain routes (host-gw):
device, routes, neighbours, forwarding entries, masquerade and forward rules. It
takes flannel's flags, net-conf.json and Node annotations, and can join or replace
a flannel network. Every flag can also be set as FLANNELD_NAME. Needs root. What it
made stays when it ends; --cleanup removes it.

Exit codes: 0 ended by a signal, 1 it could not go on, 2 usage.`,
		Example: `  portolan podnet --kube-subnet-mgr --ip-masq
  portolan podnet --manifests nodes/ --net-config-path net-conf.json --hostname-override node-1 --ip-masq`,
		Args: takes(0, 0),
	}
	f.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := fromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
			return err
		}
		return f.run(cmd)
	}
	return cmd
}

func (f *podnetFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.nodeName, "hostname-override", os.Getenv("NODE_NAME"), "name of this node's Node object; without it NODE_NAME, else the host name")
	set.StringSliceVar(&f.manifests, "manifests", nil, "files or folders with Node objects, instead of an API server")
	set.StringVar(&f.kubeconfig, "kubeconfig-file", "", "how the API server is reached; without it as a pod of the cluster")
	set.StringVar(&f.master, "kube-api-url", "", "URL of the API server")
	set.StringVar(&f.netConfig, "net-config-path", "/etc/kube-flannel/net-conf.json", "the network's configuration")
	set.StringVar(&f.prefix, "kube-annotation-prefix", podnet.DefaultPrefix, "prefix of the Node annotations")
	set.BoolVar(&f.subnetMgr, "kube-subnet-mgr", true, "Node objects say which node has which range; there is no other way")
	set.BoolVar(&f.masquerade, "ip-masq", false, "masquerade what leaves the pod network")
	set.BoolVar(&f.noFullyRandom, "ip-masq-fully-random-disable", false, "let masquerade keep source ports")
	set.BoolVar(&f.forward, "iptables-forward-rules", true, "accept packets of pods in FORWARD")
	set.StringArrayVar(&f.ifaces, "iface", nil, "external interface, by name or address; repeatable, the first that is there counts")
	set.StringArrayVar(&f.patterns, "iface-regex", nil, "external interface, by a regular expression for its address or name; repeatable")
	set.StringVar(&f.canReach, "iface-can-reach", "", "external interface: the one through which this address is reached")
	set.StringVar(&f.publicIP, "public-ip", "", "address that peers send to, when it is not the interface's")
	set.StringVar(&f.publicIPv6, "public-ipv6", "", "the same for IPv6")
	set.StringVar(&f.subnetFile, "subnet-file", "/run/flannel/subnet.env", "file for the CNI plugin flannel")
	set.StringVar(&f.cniFile, "cni-conf-file", "", "file for the CNI plugins bridge, host-local and portmap, for example /etc/cni/net.d/10-portolan.conflist")
	set.StringVar(&f.healthzIP, "healthz-ip", "0.0.0.0", "address of /healthz and /readyz")
	set.IntVar(&f.healthzPort, "healthz-port", 0, "port of /healthz and /readyz; 0 for none")
	set.IntVar(&f.resyncSeconds, "iptables-resync", 60, "seconds between two full looks, 1 to 86400; changes by others are noticed apart from them")
	set.BoolVar(&f.setUp, "set-node-network-unavailable", true, "set the Node's condition NetworkUnavailable to False once pods have a network")
	set.BoolVar(&f.cleanup, "cleanup", false, "remove devices, routes, rules and files of the pod network, and end")
	set.IntVarP(&f.verbosity, "v", "v", 0, "how much is logged: 4 and more adds details")
}

// fromEnvironment sets flags that the command line does not, as flannel does.
func fromEnvironment(set *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	set.VisitAll(func(flag *pflag.Flag) {
		name := "FLANNELD_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if value, ok := lookup(name); ok && !flag.Changed {
			if err := set.Set(flag.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("podnet: variable %s: %w", name, err))
			}
		}
	})
	return errors.Join(errs...)
}

// run keeps the pod network until the context ends, or removes it.
func (f *podnetFlags) run(cmd *cobra.Command) error {
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.Level(-f.verbosity)}))
	o, err := f.options(log)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return badNews(errors.New("podnet: to program the kernel needs root"))
	}
	rules, closeRules, err := f.openRules(cmd.Context(), o.Config, log)
	if err != nil {
		return badNews(err)
	}
	defer closeRules()
	o.Rules = rules
	if f.cleanup {
		return badNews(agent.Cleanup(cmd.Context(), o))
	}
	follow, err := f.cluster(&o)
	if err != nil {
		return err
	}
	return badNews(f.work(cmd.Context(), o, follow))
}

// mostResync is a day: --iptables-resync in seconds.
const mostResync = 24 * 60 * 60

func isAddr(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

// options holds the flags and the file against each other; what they say of Nodes and rules
// is added by cluster and openRules.
func (f *podnetFlags) options(log *slog.Logger) (agent.Options, error) {
	o := agent.Options{NodeName: f.nodeName, Masquerade: f.masquerade, SubnetFile: f.subnetFile, CNIFile: f.cniFile, Log: log, RetryMin: retryMin, RetryMax: 30 * time.Second, Full: time.Duration(f.resyncSeconds) * time.Second}
	switch {
	case !f.subnetMgr:
		return o, errors.New("podnet: --kube-subnet-mgr=false asks for etcd, which is not supported: leave it out")
	case f.resyncSeconds < 1 || f.resyncSeconds > mostResync:
		return o, fmt.Errorf("podnet: --iptables-resync %d is not between 1 and %d seconds", f.resyncSeconds, mostResync)
	case f.healthzPort < 0 || f.healthzPort > 65535:
		return o, fmt.Errorf("podnet: --healthz-port %d is not between 0 and 65535", f.healthzPort)
	case f.healthzPort != 0 && !isAddr(f.healthzIP):
		return o, fmt.Errorf("podnet: --healthz-ip %q is not an IP address", f.healthzIP)
	case o.NodeName == "":
		name, err := os.Hostname()
		if err != nil {
			return o, fmt.Errorf("podnet: name of this host: %w", err)
		}
		o.NodeName = strings.ToLower(name)
	}
	text, err := os.ReadFile(f.netConfig)
	if err != nil {
		return o, fmt.Errorf("podnet: --net-config-path: %w", err)
	}
	if o.Config, err = podnet.ParseConfig(text); err != nil {
		return o, err
	}
	for _, w := range podnet.ConfigWarnings(text) {
		log.Warn("pod network", "warning", w)
	}
	log.Info("pod network", "backend", string(o.Config.Backend.Type), "config", f.netConfig)
	if o.Annotations, err = podnet.NewAnnotations(f.prefix); err != nil {
		return o, err
	}
	o.Choice, err = f.choice()
	return o, err
}

// choice says how the external interface is found.
func (f *podnetFlags) choice() (linux.Choice, error) {
	c := linux.Choice{Names: f.ifaces}
	for _, text := range f.patterns {
		p, err := regexp.Compile(text)
		if err != nil {
			return c, fmt.Errorf("podnet: --iface-regex: %w", err)
		}
		c.Patterns = append(c.Patterns, p)
	}
	for name, text := range map[string]string{"iface-can-reach": f.canReach, "public-ip": f.publicIP, "public-ipv6": f.publicIPv6} {
		if text == "" {
			continue
		}
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return c, fmt.Errorf("podnet: --%s: %q is not an IP address", name, text)
		}
		if addr.Zone() != "" || name == "public-ip" && !addr.Is4() || name == "public-ipv6" && !addr.Is6() {
			return c, fmt.Errorf("podnet: --%s: peers cannot use %q: --public-ip is IPv4, --public-ipv6 is IPv6, none has a zone", name, text)
		}
		if name == "iface-can-reach" {
			c.CanReach = addr
		} else {
			c.PublicIPs = append(c.PublicIPs, addr)
		}
	}
	return c, nil
}

// cluster prepares to follow the Nodes, and where to announce the own one.
func (f *podnetFlags) cluster(o *agent.Options) (func(context.Context, func([]podnet.Node)) error, error) {
	if len(f.manifests) > 0 {
		o.Cluster = &files{log: o.Log}
		report := newProblemLog(o.Log).report
		return func(ctx context.Context, tell func([]podnet.Node)) error {
			return podnodes.FromManifests(ctx, f.manifests, func(nodes []podnet.Node, problems []manifests.Problem) {
				report(problems)
				tell(nodes)
			})
		}, nil
	}
	client, err := apiserver.Connect(apiserver.Connection{Kubeconfig: f.kubeconfig, Master: f.master, QPS: 5, Burst: 10, UserAgent: "portolan-podnet/" + version})
	if err != nil {
		return nil, fmt.Errorf("podnet: no nodes: name files or folders with --manifests PATH, or an API server with --kubeconfig-file FILE or --kube-api-url URL, or run in a cluster: %w", err)
	}
	o.Cluster = ownNode{client, o.NodeName, f.setUp}
	return func(ctx context.Context, tell func([]podnet.Node)) error {
		return podnodes.FromAPI(ctx, client, o.Log, tell)
	}, nil
}

// work runs until the context ends.
func (f *podnetFlags) work(ctx context.Context, o agent.Options, follow func(context.Context, func([]podnet.Node)) error) error {
	a := agent.New(o)
	w := newCrew(ctx)
	if f.healthzPort != 0 {
		server := healthcheck.Server{Name: "health server", Address: net.JoinHostPort(f.healthzIP, strconv.Itoa(f.healthzPort)), Handler: podnetHealth(a)}
		server.Trouble = func(err error) { o.Log.Error("will try again to listen", "error", err) }
		w.add(server.Serve)
	}
	nodes := make(chan []podnet.Node)
	w.add(func(ctx context.Context) error {
		return follow(ctx, func(list []podnet.Node) {
			select {
			case nodes <- list:
			case <-ctx.Done():
			}
		})
	})
	w.add(func(ctx context.Context) error { return a.Run(ctx, nodes) })
	<-w.ctx.Done()
	return w.end()
}

// podnetHealth answers as flannel: alive while it runs, ready when pods have a
// network.
func podnetHealth(a *agent.Agent) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !a.Ready() {
			http.Error(w, "the pod network is not there yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// ownNode is the Node of this host at the API server.
type ownNode struct {
	client *apiserver.Client
	name   string
	setUp  bool
}

// Announce sets the annotations.
func (n ownNode) Announce(ctx context.Context, annotations map[string]string) error {
	return n.client.AnnotateNode(ctx, n.name, annotations)
}

// Up sets the condition, with flannel's reason.
func (n ownNode) Up(ctx context.Context) error {
	if !n.setUp {
		return nil
	}
	return n.client.NetworkIsUp(ctx, n.name, "FlannelIsUp", "the pod network of this node is there")
}

// files cannot be announced in: whoever writes them has to know.
type files struct {
	log  *slog.Logger
	told bool
}

// Announce says once what the Node in the files lacks.
func (f *files) Announce(_ context.Context, annotations map[string]string) error {
	if !f.told {
		f.log.Warn("the Node in --manifests lacks annotations by which peers find this node", "annotations", annotations)
	}
	f.told = true
	return nil
}

// Up has nobody to tell.
func (*files) Up(context.Context) error { return nil }
