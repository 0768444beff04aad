package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// fillerManifest is a Service with this many IPv4 endpoints, none of which is ready:
// they count for the size of the cluster and cost nothing else.
func fillerManifest(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`---
apiVersion: v1
kind: Service
metadata: {name: filler, namespace: default}
spec:
  clusterIP: 10.96.3.30
  clusterIPs: [10.96.3.30, "fd00:96::31e"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  ports:
  - {name: p0, protocol: TCP, port: 80, targetPort: 8080}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: filler-4, namespace: default, labels: {kubernetes.io/service-name: filler}}
addressType: IPv4
ports: [{name: p0, protocol: TCP, port: 8080}]
endpoints:
`)
	for i := range n {
		fmt.Fprintf(&b, "- {addresses: [10.244.%d.%d], conditions: {ready: false, serving: false}}\n", 100+i/250, 1+i%250)
	}
	return b.Bytes()
}

// TestLargeCluster: above 1,000 endpoints the rules of all endpoints lose their
// comments, below 500 they get them back; in between nothing is written. No call
// fails meanwhile.
func TestLargeCluster(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newChanger(t, b, changeScenario())
		story := largeStory()
		if err := c.run(story); err != nil {
			t.Errorf("%s: %v", b.Name(), err)
		}
		c.count("changes", len(story.steps))
	})
}

func largeStory() sequence {
	// Two Services of two ports with two endpoints of each family.
	const others = 16
	const everything = "SVC:still SEP:still:a SEP:still:x SVC:web SEP:web:a SEP:web:x"
	to := func(what string, endpoints int, chains string) step {
		return step{what: what, services: []manifest{web("clusterip", "a", "x")}, extra: fillerManifest(endpoints - others),
			want: everywhere(3, "answered a,x"), chains: chains}
	}
	return sequence{
		name: "large cluster",
		probes: []*probe{call("pod:visitor", "tcp", "10.96.3.10:80"), call("client", "udp", "[fd00:96::30a]:80"),
			call("client", "tcp", "198.51.100.249:80")},
		before: []string{"unreachable", "unreachable", "answered a,x"},
		steps: []step{
			to("1,000 endpoints", 1000, "filter-services services SVC:web SEP:web:a SEP:web:x"),
			to("1,001", 1001, everything),
			to("700", 700, ""),
			to("500", 500, ""),
			to("499", 499, everything),
			to("1,000 again", 1000, ""),
			to("2,000", 2000, everything),
			to("few", others+1, everything),
		},
	}
}

// TestLargeClusterComments: what loses its comments and what keeps them.
func TestLargeClusterComments(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		if b.mode != "iptables" {
			t.Skip("only iptables mode comments the rules of endpoints")
		}
		c := newChanger(t, b, changeScenario())
		for _, large := range []bool{false, true, false} {
			c.services = fillerManifest(1)
			if large {
				c.services = fillerManifest(1001)
			}
			if _, err := c.drain(); err != nil {
				t.Fatal(err)
			}
			rules, err := save(t.Context(), c.Node("node1"), b.variant, "iptables-save")
			if err != nil {
				t.Fatal(err)
			}
			for text, keeps := range map[string]bool{
				"default/still:p0 -> 10.244.1.11:8080": false, "\"default/still:p1\" -m udp -j DNAT": false,
				"default/still:p0 cluster IP": true, "default/still:p0 loadbalancer IP": true, "\"default/still:p0\" -m tcp --dport 31900": true,
			} {
				if has := strings.Contains(rules, text); has != (keeps || !large) {
					t.Errorf("large %v: comment %q: %v", large, text, has)
				}
			}
		}
		c.count("changes", 3)
	})
}
