package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan/e2e/controlplane"
	"portolan/lab"
)

// nodeName is the Node that every run plays, each on a node of the lab of its own,
// so that no rule, table or connection of the run before is met.
const nodeName = "measured"

// input is where Portolan reads the objects.
type input string

const (
	manifests input = "manifests"
	apiServer input = "api"
)

// world is a lab with a control plane, the Services of one workload in it, and the
// same Services as manifest files.
type world struct {
	lab    *lab.Lab
	server *controlplane.Server
	api    *controlplane.Client
	input  input
	items  []item
	target int // of items, see changed
	dir    string
	used   int // nodes that had a run
}

// newWorld builds a lab with nodes for so many runs, starts the control plane and
// fills it. The caller closes the world.
func newWorld(ctx context.Context, programs string, in input, items []item, runs int) (*world, error) {
	w := &world{input: in, items: items, target: changed(items)}
	if err := w.build(ctx, programs, runs); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) build(ctx context.Context, programs string, runs int) error {
	t := lab.Topology{Client: lab.ClientAddrs}
	for i := 1; i <= runs; i++ {
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
	w.server, err = controlplane.Start(ctx, controlplane.Options{
		Programs: programs,
		Host:     &w.lab.Node("control").Host,
		Services: []netip.Prefix{serviceNetwork},
		Args:     []string{"--service-node-port-range=20000-32767"}, // a fifth of 10,000 Services, and health checks
	})
	if err != nil {
		return err
	}
	w.api = w.server.Client(w.server.Token())
	if w.dir, err = os.MkdirTemp("", "portolan-bench-"); err != nil {
		return fmt.Errorf("bench: working folder: %w", err)
	}
	if err := w.fill(ctx); err != nil {
		return err
	}
	return w.writeManifests()
}

func (w *world) close() error {
	var errs []error
	if w.api != nil {
		w.api.Close()
	}
	if w.server != nil {
		errs = append(errs, w.server.Close())
	}
	if w.lab != nil {
		errs = append(errs, w.lab.Close())
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}

// fill creates the objects, and keeps what the API server made of them.
func (w *world) fill(ctx context.Context) error {
	began := time.Now()
	if err := w.api.Call(ctx, http.MethodPost, "/api/v1/namespaces", v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, nil); err != nil {
		return err
	}
	if err := w.api.Call(ctx, http.MethodPost, "/api/v1/nodes", v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, nil); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan *item)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for it := range work {
				if err := w.create(ctx, it); err != nil {
					stop(err)
				}
			}
		})
	}
	for i := range w.items {
		work <- &w.items[i]
	}
	close(work)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("bench: fill the API server: %w", err)
	}
	progress("%d Services in the API server after %.0f s", len(w.items), time.Since(began).Seconds())
	return nil
}

func (w *world) create(ctx context.Context, it *item) error {
	path := "/api/v1/namespaces/" + namespace + "/services"
	status := it.service.Status
	if err := w.api.Call(ctx, http.MethodPost, path, it.service, &it.service); err != nil {
		return err
	}
	if len(status.LoadBalancer.Ingress) > 0 {
		it.service.Status = status
		if err := w.api.Call(ctx, http.MethodPut, path+"/"+it.service.Name+"/status", it.service, &it.service); err != nil {
			return err
		}
	}
	for i := range it.slices {
		if err := w.api.Call(ctx, http.MethodPost, slicesPath, it.slices[i], &it.slices[i]); err != nil {
			return err
		}
	}
	return nil
}

const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices"

// writeManifests writes what the API server has into files of some hundred
// objects, and the EndpointSlice that will change into one of its own: how many
// files a folder has is not what is measured.
func (w *world) writeManifests() error {
	const perFile = 500
	for _, folder := range []string{w.all(), w.moving()} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			return fmt.Errorf("bench: manifests: %w", err)
		}
	}
	for first := 0; first < len(w.items); first += perFile {
		var objects []any
		for i := first; i < min(first+perFile, len(w.items)); i++ {
			objects = append(objects, w.items[i].service)
			for _, s := range w.items[i].slices {
				if i != w.target {
					objects = append(objects, s)
				}
			}
		}
		if err := writeList(filepath.Join(w.all(), fmt.Sprintf("services-%05d.json", first)), objects...); err != nil {
			return err
		}
	}
	return w.writeMoving(openPort)
}

func (w *world) all() string    { return filepath.Join(w.dir, "all") }
func (w *world) moving() string { return filepath.Join(w.dir, "moving") }

// writeMoving replaces the file of the changing EndpointSlice in one step.
func (w *world) writeMoving(port int32) error {
	s := w.items[w.target].slices[0].DeepCopy()
	s.Ports[0].Port = &port
	unfinished := filepath.Join(w.dir, "slice.json")
	if err := writeList(unfinished, s); err != nil {
		return err
	}
	if err := os.Rename(unfinished, filepath.Join(w.moving(), "slice.json")); err != nil {
		return fmt.Errorf("bench: manifests: %w", err)
	}
	return nil
}

// putMoving changes the same EndpointSlice in the API server.
func (w *world) putMoving(ctx context.Context, port int32) error {
	s := w.items[w.target].slices[0].DeepCopy()
	s.Ports[0].Port = &port
	s.ResourceVersion = "" // whatever is there
	s.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: time.Now().Format(time.RFC3339Nano)}
	return w.api.Call(ctx, http.MethodPut, slicesPath+"/"+s.Name, s, nil)
}

func writeList(file string, objects ...any) error {
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("bench: manifests: %w", err)
	}
	return nil
}

// nextNode takes a fresh node of the lab for a run: the Node object gets its
// address, a pod behind it answers for every endpoint, and the client asks it for
// the Services, and for the pods themselves.
func (w *world) nextNode(ctx context.Context) (*lab.Node, error) {
	w.used++
	node := w.lab.Node(fmt.Sprintf("node%d", w.used))
	if node == nil {
		return nil, fmt.Errorf("bench: no node is left for run %d", w.used)
	}
	like := endpoints
	status := map[string]any{"status": v1.NodeStatus{Addresses: []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: node.Addr(like).String()}, {Type: v1.NodeHostName, Address: nodeName}}}}
	if err := w.api.Call(ctx, http.MethodPatch, "/api/v1/nodes/"+nodeName+"/status", status, nil); err != nil {
		return nil, err
	}
	object := v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	object.Status.Addresses = status["status"].(v1.NodeStatus).Addresses
	if err := writeList(filepath.Join(w.all(), "node.json"), object); err != nil {
		return nil, err
	}
	if err := errors.Join(w.writeMoving(openPort), w.putMoving(ctx, openPort)); err != nil {
		return nil, err
	}
	pod, err := w.lab.AddPod(lab.NumberedPod(fmt.Sprintf("endpoints%d", w.used), w.used, 1, openPort))
	if err != nil {
		return nil, err
	}
	return node, errors.Join(
		ip(ctx, &pod.Host, "route", "add", "local", endpointNetwork.String(), "dev", "lo"),
		ip(ctx, &node.Host, "route", "add", endpointNetwork.String(), "via", pod.Addr(like).String()),
		ip(ctx, w.lab.Client, "route", "replace", endpointNetwork.String(), "via", node.Addr(like).String()),
		ip(ctx, w.lab.Client, "route", "replace", serviceNetwork.String(), "via", node.Addr(like).String()))
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
	if out, err := h.Command(ctx, lab.HostVariant, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("bench: ip %v in %s: %w: %s", args, h.Name, err, out)
	}
	return nil
}
