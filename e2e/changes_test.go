package e2e

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"portolan/lab"
)

// TestChanges: what changes in the files reaches the packets: a pod is added, one
// is taken out and killed, all are gone, the Service itself is gone. Meanwhile
// another Service loses no connection.
func TestChanges(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, baseScenario(t))
		for _, f := range c.scenario.flows {
			if err := c.check(f); err != nil {
				t.Fatalf("%s\n\t%v", f.line, err)
			}
		}
		traffic := c.traffic()
		const address = "10.96.0.12:80"
		extra := lab.NumberedPod("extra-1", 2, 31, 8080)
		if _, err := c.AddPod(extra); err != nil {
			t.Fatal(err)
		}
		if _, err := c.AddPod(lab.NumberedPod("extra-2", 1, 32, 8080)); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			what, service string
			endpoints     []string
			kill          string
			want          string
		}{
			{"a Service without endpoints", extraService, nil, "", "refused"},
			{"a first endpoint", extraService, []string{"10.244.2.41"}, "", "answered extra-1"},
			{"another endpoint instead", extraService, []string{"10.244.1.42"}, "", "answered extra-2"},
			{"the first one killed", extraService, []string{"10.244.1.42"}, "extra-1", "answered extra-2"},
			{"no endpoints again", extraService, nil, "", "refused"},
			{"an endpoint again", extraService, []string{"10.244.1.42"}, "", "answered extra-2"},
			{"no Service any more", "", nil, "", "unreachable"},
		} {
			if step.kill != "" {
				if err := c.Pod(step.kill).Kill(); err != nil {
					t.Fatal(err)
				}
			}
			c.apply(map[string][]byte{"extra.yaml": extraManifests(step.service, step.endpoints)})
			if err := c.settles(address, step.want); err != nil {
				t.Errorf("%s: %v", step.what, err)
			}
		}
		if err := traffic(); err != nil {
			t.Errorf("meanwhile: %v", err)
		}
		c.count("changes", len(c.scenario.flows)+7)
	})
}

// TestRollingUpdate: while a pod takes the place of another, which first terminates
// and then drains, no connection to the Service fails.
func TestRollingUpdate(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, baseScenario(t))
		const address = "10.96.0.12:80"
		for i, name := range []string{"old", "new"} {
			if _, err := c.AddPod(lab.NumberedPod(name, i+1, 31, 8080)); err != nil {
				t.Fatal(err)
			}
		}
		const oldIP, newIP = "10.244.1.41", "10.244.2.41"
		c.apply(map[string][]byte{"extra.yaml": extraManifests(extraService, []string{oldIP})})
		for _, from := range []string{"client", "node2"} { // the other node may be behind
			if err := c.settlesFrom(from, address, "answered old"); err != nil {
				t.Fatal(err)
			}
		}
		traffic := c.trafficTo([]route{{"client", address}, {"pod:visitor-1", address}, {"node2", address}})
		terminating := strings.Replace(string(extraManifests(extraService, []string{newIP, oldIP})),
			oldIP+"], conditions: {ready: true}", oldIP+"], conditions: {ready: false, serving: true, terminating: true}", 1)
		c.apply(map[string][]byte{"extra.yaml": []byte(terminating)})
		if err := c.settles(address, "answered new"); err != nil {
			t.Error(err)
		}
		// The other node may be behind; a pod that waits some time before it drains, as
		// pods do with preStop, waits for that. Here its last answer tells.
		if err := c.settlesFrom("node2", address, "answered new"); err != nil {
			t.Error(err)
		}
		if err := c.Pod("old").Drain(t.Context()); err != nil {
			t.Error(err)
		}
		c.apply(map[string][]byte{"extra.yaml": extraManifests(extraService, []string{newIP})})
		if err := c.settles(address, "answered new"); err != nil {
			t.Error(err)
		}
		if err := traffic(); err != nil {
			t.Errorf("meanwhile: %v", err)
		}
		c.count("changes", 3)
	})
}

// settles polls an address from the client until all of several tries in a row are
// as wanted.
func (c *cluster) settles(address, want string) error {
	return c.settlesFrom("client", address, want)
}

func (c *cluster) settlesFrom(from, address, want string) error {
	to := netip.MustParseAddrPort(address)
	return eventually(func() error {
		for range 3 {
			o := c.try(c.host(from), lab.Call{Proto: "tcp", To: to, Timeout: silence})
			got := o.Verdict.String()
			if o.Verdict == lab.Answered {
				got += " " + o.Pod
			}
			if got != want {
				return fmt.Errorf("%s to %s: %v, want %s", from, address, o, want)
			}
		}
		return nil
	})
}

const extraService = `apiVersion: v1
kind: Service
metadata: {name: extra, namespace: default}
spec:
  clusterIP: 10.96.0.12
  clusterIPs: [10.96.0.12]
  ipFamilies: [IPv4]
  ports:
  - {protocol: TCP, port: 80, targetPort: 8080}
`

func extraManifests(service string, endpoints []string) []byte {
	var b bytes.Buffer
	b.WriteString(service)
	if service == "" || len(endpoints) == 0 {
		return b.Bytes()
	}
	b.WriteString(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: extra-4, namespace: default, labels: {kubernetes.io/service-name: extra}}
addressType: IPv4
ports:
- {name: "", protocol: TCP, port: 8080}
endpoints:
`)
	for _, addr := range endpoints {
		fmt.Fprintf(&b, "- {addresses: [%s], conditions: {ready: true}}\n", addr)
	}
	return b.Bytes()
}
