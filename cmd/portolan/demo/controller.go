package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"portolan/lab"
)

// Endpoint is a pod behind a Service of the demo.
type Endpoint struct {
	lab.PodSpec
	Terminating bool // it answers what is open, and gets nothing new
	Unreachable bool // its node is gone
}

// served is a Service of the demo, and which pods answer for it.
type served struct {
	name      string
	object    string // its manifest
	endpoints []Endpoint
}

// Controller keeps the EndpointSlices of the demo in step with the pods of a lab,
// as the controllers of a cluster do.
type Controller struct {
	lab   *lab.Lab
	write func(manifests []byte) error

	mu       sync.Mutex
	services []served
	nodes    []lab.NodeSpec
	pods     []lab.PodSpec
	made     map[string]int  // pods of each node so far
	cut      map[string]bool // nodes that are off the switch
}

// NewController begins with the pods of the plan; write makes manifests those that
// the proxies follow. Only a plan with Services of its own has one.
func (p Plan) NewController(l *lab.Lab, write func([]byte) error) *Controller {
	c := &Controller{lab: l, write: write, services: p.services, nodes: p.Topology.Nodes, pods: p.Topology.Pods, made: map[string]int{}, cut: map[string]bool{}}
	for _, pod := range c.pods {
		c.made[pod.Node]++
	}
	return c
}

// change edits the endpoints of all Services and has the result written.
func (c *Controller) change(edit func(service string, list []Endpoint) []Endpoint) error {
	for i := range c.services {
		s := &c.services[i]
		s.endpoints = edit(s.name, slices.Clone(s.endpoints))
	}
	return c.write(manifestsOf(c.services))
}

func (c *Controller) without(pod string) error {
	c.pods = slices.DeleteFunc(slices.Clone(c.pods), func(p lab.PodSpec) bool { return p.Name == pod })
	return c.change(func(_ string, list []Endpoint) []Endpoint {
		return slices.DeleteFunc(list, func(e Endpoint) bool { return e.Name == pod })
	})
}

// notice is how long a pod that terminates still takes new connections.
const notice = time.Second

// Kill ends a pod as a crash does, or takes a node off the switch. The endpoints
// follow.
func (c *Controller) Kill(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.lab.Pod(name); p != nil {
		if err := p.Kill(); err != nil {
			return err
		}
		return c.without(name)
	}
	n := c.lab.Node(name)
	if n == nil {
		return fmt.Errorf("lab: no pod and no node is called %q", name)
	}
	if err := n.Unplug(); err != nil {
		return err
	}
	c.cut[name] = true
	return c.change(func(_ string, list []Endpoint) []Endpoint {
		for i := range list {
			list[i].Unreachable = list[i].Unreachable || list[i].Node == name
		}
		return list
	})
}

// Drain ends a pod, or all pods of a node, as they should end: first the endpoints
// say so, then nothing new is taken, and what is open may end until ctx does.
func (c *Controller) Drain(ctx context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pods []string
	for _, p := range c.pods {
		if p.Name == name || p.Node == name {
			pods = append(pods, p.Name)
		}
	}
	if len(pods) == 0 {
		return fmt.Errorf("lab: no pod and no node with pods is called %q", name)
	}
	err := c.change(func(_ string, list []Endpoint) []Endpoint {
		for i := range list {
			list[i].Terminating = list[i].Terminating || slices.Contains(pods, list[i].Name)
		}
		return list
	})
	if err != nil {
		return err
	}
	select { // as the preStop hook of a pod, which gives proxies time to hear of it
	case <-time.After(notice):
	case <-ctx.Done():
	}
	for _, pod := range pods {
		if err := c.lab.Pod(pod).Drain(ctx); err != nil {
			return err
		}
		if err := c.without(pod); err != nil {
			return err
		}
	}
	return nil
}

// Add makes a pod on a node, which becomes an endpoint of the Service web. It
// returns its name.
func (c *Controller) Add(node string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.nodes, func(n lab.NodeSpec) bool { return n.Name == node })
	if i < 0 {
		return "", fmt.Errorf("lab: no node is called %q", node)
	}
	if c.cut[node] {
		return "", fmt.Errorf("lab: %s is off the switch: nobody would reach the pod", node)
	}
	j := c.made[node] + 1
	if j > mostPods {
		return "", fmt.Errorf("lab: %s has had %d pods, and there is no address for another", node, mostPods)
	}
	spec := lab.NumberedPod(fmt.Sprintf("pod-%d-%d", i+1, j), i+1, j, port)
	if _, err := c.lab.AddPod(spec); err != nil {
		return "", err
	}
	c.made[node] = j
	c.pods = append(slices.Clone(c.pods), spec)
	return spec.Name, c.change(func(service string, list []Endpoint) []Endpoint {
		if service == "web" {
			list = append(list, Endpoint{PodSpec: spec})
		}
		return list
	})
}

// mostPods is how many pods a node may have over the life of a lab.
const mostPods = 89

// manifestsOf writes Services with their EndpointSlices.
func manifestsOf(services []served) []byte {
	var b strings.Builder
	for _, s := range services {
		b.WriteString(s.object)
		if len(s.endpoints) > 0 {
			endpointSlices(&b, s.name, s.endpoints)
		}
	}
	return []byte(b.String())
}
