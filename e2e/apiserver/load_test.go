package apiserver

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"portolan/lab"
)

const writers = 8

// parallel does n things in several goroutines, and fails the test with the first
// error.
func (w *world) parallel(n int, do func(ctx context.Context, i int) error) {
	w.t.Helper()
	var group sync.WaitGroup
	errs := make(chan error, writers)
	for first := range writers {
		group.Go(func() {
			for i := first; i < n; i += writers {
				if err := do(w.t.Context(), i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		w.t.Fatal(err)
	}
}

func numbered(i int) (name, ip string) {
	return fmt.Sprintf("s%05d", i), fmt.Sprintf("10.96.%d.%d", 16+i/250, 1+i%250)
}

// servedWithin is how soon after the last of a burst every Service is to be served:
// 2 s on a machine that does nothing else. The test fails far beyond.
const servedWithin = 5 * 2 * time.Second

// A burst of Services is served soon after the last of them; the time is printed.
func TestBurst(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			const count = 1000
			w := newWorld(t)
			w.web()
			w.start(proxyToken, "--proxy-mode", mode, "--hostname-override", "node1").healthy()
			w.answers(webIP, "a")
			start := time.Now()
			w.parallel(count, func(ctx context.Context, i int) error {
				name, ip := numbered(i)
				s := w.slice(name, "b")
				if err := w.server.Call(ctx, "POST", slicesPath, s, nil); err != nil {
					return err
				}
				return w.server.Call(ctx, "POST", servicesPath, newService(name, ip), nil)
			})
			last := time.Now()
			w.parallel(count, func(ctx context.Context, i int) error {
				_, ip := numbered(i)
				for deadline := last.Add(patience); ; {
					o := w.dial(ip)
					if o.Verdict == lab.Answered && o.Pod == "b" {
						return nil
					}
					if time.Now().After(deadline) {
						return fmt.Errorf("%s: %v", ip, o)
					}
				}
			})
			if took := time.Since(last); took > servedWithin {
				t.Errorf("%s: the last Service is served after %v", mode, took)
			}
			t.Logf("%s: %d Services created in %v; every one called and answered %v after the last was created",
				mode, count, last.Sub(start).Round(time.Millisecond), time.Since(last).Round(time.Millisecond))
		})
	}
}

// The memory that a cluster takes, printed.
func TestMemory(t *testing.T) {
	const services, endpoints = 2000, 10
	w := newWorld(t)
	w.web()
	w.parallel(services, func(ctx context.Context, i int) error {
		name, ip := numbered(i)
		if err := w.server.Call(ctx, "POST", slicesPath, bigSlice(name, i, endpoints), nil); err != nil {
			return err
		}
		return w.server.Call(ctx, "POST", servicesPath, newService(name, ip), nil)
	})
	for _, mode := range modes {
		p := w.start(proxyToken, "--proxy-mode", mode, "--hostname-override", "node1").healthy()
		w.answers(webIP, "a")
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		lines := slices.DeleteFunc(strings.Split(string(status), "\n"), func(l string) bool {
			return !strings.HasPrefix(l, "VmHWM") && !strings.HasPrefix(l, "VmRSS")
		})
		t.Logf("%s, %d Services of %d endpoints: %s", mode, services, endpoints, strings.Join(strings.Fields(strings.Join(lines, " ")), " "))
		p.stop()
	}
}

// bigSlice is as an endpoint controller writes it, with what a proxy does not read.
func bigSlice(service string, i, endpoints int) *discovery.EndpointSlice {
	yes, no, port, name, zone := true, false, int32(8080), "", "near"
	s := &discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4, Ports: []discovery.EndpointPort{{Name: &name, Port: &port}}}
	s.Name = service + "-1"
	s.Labels = map[string]string{discovery.LabelServiceName: service, discovery.LabelManagedBy: "endpointslice-controller.k8s.io"}
	for e := range endpoints {
		node := fmt.Sprintf("node%d", 2+(i*endpoints+e)%200)
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.244.%d.%d", 2+(i*endpoints+e)/250, 1+(i*endpoints+e)%250)},
			Conditions: discovery.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			NodeName:   &node, Zone: &zone,
			TargetRef: &v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("%s-5d8f7c9b6d-%05d", service, e), UID: "0f7a3f0e-2b0d-4f57-9a55-4c0f1f0c2d11"},
		})
	}
	return s
}
