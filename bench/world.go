package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan/bench/figures"
	"portolan/e2e/controlplane"
	"portolan/lab"
)

// nodeName is the Node that every run plays, each on a node of the lab of its own,
// so that no rule, table or connection of the run before is met.
const nodeName = "measured"

// world is a lab with a control plane and the Services of one workload in it.
type world struct {
	lab     *lab.Lab
	options controlplane.Options
	server  *controlplane.Server
	empty   *controlplane.Server // without Services; nil until it is wanted
	api     *controlplane.Client
	items   []item
	target  int            // of items, see changed
	bare    netip.AddrPort // a pod behind a node without rules
	tracked netip.AddrPort // a pod behind a node with one rule, which is not about it
	dir     string
	used    int // nodes that had a run
}

// newWorld builds a lab with nodes for so many runs, starts the control plane and
// fills it. The caller closes the world.
func newWorld(ctx context.Context, programs string, of figures.Workload, runs int) (*world, error) {
	items := workload(of)
	w := &world{items: items, target: changed(items)}
	if err := w.build(ctx, programs, of, runs); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) build(ctx context.Context, programs string, of figures.Workload, runs int) error {
	t := lab.Topology{Client: lab.ClientAddrs}
	for i := 1; i <= runs+2; i++ {
		t.Nodes = append(t.Nodes, lab.NumberedNode(i))
	}
	t.Nodes = append(t.Nodes, lab.NodeSpec{Name: "control", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("2001:db8::5")}})
	var err error
	if w.lab, err = lab.New(t); err != nil {
		return err
	}
	if err := manyPorts(w.lab.Client); err != nil {
		return err
	}
	if w.bare, err = w.plainPod("bare", runs+1); err != nil {
		return err
	}
	if w.tracked, err = w.plainPod("tracked", runs+2); err != nil {
		return err
	}
	if err := runIn(ctx, &w.lab.Node(fmt.Sprintf("node%d", runs+2)).Host, "nft", oneRule); err != nil {
		return err
	}
	if w.dir, err = os.MkdirTemp("", "portolan-bench-"); err != nil {
		return fmt.Errorf("bench: working folder: %w", err)
	}
	w.options = controlplane.Options{
		Programs: programs,
		Host:     &w.lab.Node("control").Host,
		Services: []netip.Prefix{serviceNetwork},
		Args:     []string{"--service-node-port-range=20000-32767"}, // a fifth of 10,000 Services, and health checks
	}
	return w.fill(ctx, programs, of)
}

// oneRule is the least that makes a node track connections and ready to translate them;
// nobody calls the address.
const oneRule = `table ip one {
	chain prerouting { type nat hook prerouting priority dstnat; ip daddr 192.0.2.255 dnat to 192.0.2.254; }
}`

// plainPod adds a pod behind a node that no product is measured on.
func (w *world) plainPod(name string, node int) (netip.AddrPort, error) {
	pod, err := w.lab.AddPod(lab.NumberedPod(name, node, 1, openPort))
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(pod.Addr(endpoints), openPort), nil
}

func (w *world) close() error {
	var errs []error
	if w.api != nil {
		w.api.Close()
	}
	for _, s := range []*controlplane.Server{w.server, w.empty} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if w.lab != nil {
		errs = append(errs, w.lab.Close())
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}

// fill starts the control plane with the objects of the workload. They are created
// once: etcd's data is kept in the user's cache, since that takes minutes.
func (w *world) fill(ctx context.Context, programs string, of figures.Workload) (err error) {
	kept, err := cached(programs, of, w.items)
	if err != nil {
		return err
	}
	o := w.options
	if _, err := os.Stat(kept); err == nil {
		o.Data = kept
	}
	if w.server, err = controlplane.Start(ctx, o); err != nil {
		return err
	}
	w.api = w.server.Client(w.server.Token())
	if o.Data != "" {
		return nil
	}
	began := time.Now()
	if err := createNode(ctx, w.api); err != nil {
		return err
	}
	if err := w.api.Call(ctx, http.MethodPost, "/api/v1/namespaces", v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, nil); err != nil {
		return err
	}
	err = abreast(ctx, func(yield func(task) bool) {
		for i := range w.items {
			if !yield(func(ctx context.Context) error { return create(ctx, w.api, w.items[i]) }) {
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("bench: fill the API server: %w", err)
	}
	progress("%d Services in the API server after %.0f s", len(w.items), time.Since(began).Seconds())
	return w.server.Save(ctx, kept)
}

func createNode(ctx context.Context, api *controlplane.Client) error {
	return api.Call(ctx, http.MethodPost, "/api/v1/nodes", v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, nil)
}

func create(ctx context.Context, api *controlplane.Client, it item) error {
	path := "/api/v1/namespaces/" + namespace + "/services"
	var created v1.Service
	if err := api.Call(ctx, http.MethodPost, path, it.service, &created); err != nil {
		return err
	}
	if len(it.service.Status.LoadBalancer.Ingress) > 0 {
		created.Status = it.service.Status
		if err := api.Call(ctx, http.MethodPut, path+"/"+created.Name+"/status", created, nil); err != nil {
			return err
		}
	}
	for _, s := range it.slices {
		if err := api.Call(ctx, http.MethodPost, slicesPath, s, nil); err != nil {
			return err
		}
	}
	return nil
}

const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices"

// emptyServer is a control plane that knows the node of a run and nothing else.
func (w *world) emptyServer(ctx context.Context, node *lab.Node) (*controlplane.Server, error) {
	started := w.empty == nil
	if started {
		var err error
		if w.empty, err = controlplane.Start(ctx, w.options); err != nil {
			return nil, err
		}
	}
	api := w.empty.Client(w.empty.Token())
	defer api.Close()
	if started {
		if err := createNode(ctx, api); err != nil {
			return nil, err
		}
	}
	return w.empty, setAddress(ctx, api, node)
}

// setAddress makes the Node object the node of the lab that plays it.
func setAddress(ctx context.Context, api *controlplane.Client, node *lab.Node) error {
	status := map[string]any{"status": v1.NodeStatus{Addresses: []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: node.Addr(endpoints).String()}, {Type: v1.NodeHostName, Address: nodeName}}}}
	return api.Call(ctx, http.MethodPatch, "/api/v1/nodes/"+nodeName+"/status", status, nil)
}

// nextNode takes a fresh node of the lab for a run: the Node object gets its
// address, a pod behind it answers for every endpoint, and the client asks it for
// the Services and the pods.
func (w *world) nextNode(ctx context.Context) (*lab.Node, error) {
	w.used++
	node := w.lab.Node(fmt.Sprintf("node%d", w.used))
	if node == nil {
		return nil, fmt.Errorf("bench: no node is left for run %d", w.used)
	}
	if err := errors.Join(setAddress(ctx, w.api, node), w.putMoving(ctx, openPort)); err != nil {
		return nil, err
	}
	pod, err := w.lab.AddPod(lab.NumberedPod(fmt.Sprintf("endpoints%d", w.used), w.used, 1, openPort))
	if err != nil {
		return nil, err
	}
	via := node.Addr(endpoints).String()
	err = errors.Join(
		ip(ctx, &pod.Host, "route", "add", "local", endpointNetwork.String(), "dev", "lo"),
		ip(ctx, &node.Host, "route", "add", endpointNetwork.String(), "via", pod.Addr(endpoints).String()),
		ip(ctx, w.lab.Client, "route", "replace", endpointNetwork.String(), "via", via),
		ip(ctx, w.lab.Client, "route", "replace", serviceNetwork.String(), "via", via))
	return node, err
}

// manyPorts lets a host that calls one address for a minute have a port for each
// call: a port is free again only 60 s after its connection ended.
func manyPorts(h *lab.Host) error {
	err := h.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("1024 65535"), 0o644)
	})
	if err != nil {
		return fmt.Errorf("bench: local ports of %s: %w", h.Name, err)
	}
	return nil
}

func ip(ctx context.Context, h *lab.Host, args ...string) error {
	return runIn(ctx, h, "ip", args...)
}

func runIn(ctx context.Context, h *lab.Host, name string, args ...string) error {
	if out, err := h.Command(ctx, lab.HostVariant, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("bench: %s %v in %s: %w: %s", name, args, h.Name, err, out)
	}
	return nil
}
