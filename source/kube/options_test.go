package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"portolan/service"
)

func optioned(pairs ...string) *v1.Service {
	return testService(func(s *v1.Service) {
		s.Annotations = map[string]string{"example.com/other": "x"}
		for i := 0; i < len(pairs); i += 2 {
			s.Annotations[pairs[i]] = pairs[i+1]
		}
	})
}

// Annotations of a Service become its options.
func TestOptions(t *testing.T) {
	got := convert(optioned("portolan.io/algorithm", "round-robin", "portolan.io/slow-start", " 30s ", "portolan.io/no-local-endpoints", "reject", "portolan.io/ipvs-scheduler", "mh"), nil)
	if got.Scheduler != "mh" || got.Algorithm != service.RoundRobin || got.SlowStart != 30*time.Second || !got.RejectNoLocal || got.Complaints != nil {
		t.Errorf("%+v", got)
	}
	got = convert(optioned("portolan.io/algorithm", "random", "portolan.io/no-local-endpoints", "drop"), nil)
	if got.Algorithm != service.Random || got.RejectNoLocal || got.Complaints != nil {
		t.Errorf("the usual, by name: %+v", got)
	}
}

// An option that is wrong is named, and everything else holds.
func TestComplaints(t *testing.T) {
	for pair, want := range map[string]string{
		"algorithm=least-connection":              "must be random or round-robin",
		"algorithm=":                              "must be random or round-robin",
		"ipvs-scheduler=":                         "must be one of rr, wrr,",
		"ipvs-scheduler=RR":                       "must be one of rr, wrr,",
		"slow-start=30":                           "a duration from 1s to 1h0m0s",
		"slow-start=10ms":                         "a duration from 1s to 1h0m0s",
		"no-local-endpoints=no":                   "must be reject or drop",
		"weight=3":                                "it is not known; portolan.io/algorithm, portolan.io/ipvs-scheduler, portolan.io/no-local-endpoints, portolan.io/slow-start, portolan.io/weights are",
		"weights=":                                `"" is not SELECTOR=WEIGHT`,
		"weights=10.0.0.1":                        `"10.0.0.1" is not SELECTOR=WEIGHT`,
		"weights=10.0.0.1=1,":                     `"" is not SELECTOR=WEIGHT`,
		"weights=10.0.0.1=-1":                     `the weight of "10.0.0.1" must be a whole number from 0 to 1000`,
		"weights=*=1001":                          `the weight of "*" must be`,
		"weights=*=1.5":                           `the weight of "*" must be`,
		"weights=web-1=2":                         `"web-1" is neither an address, a network, node/NAME, zone/NAME nor *`,
		"weights=node/=2":                         `"node/" is neither`,
		"weights=" + strings.Repeat("a", 100_000): `aaa"... (100000 bytes) is not SELECTOR=WEIGHT`,
		"weights=node/a=2,node/a=3":               `"node/a" has a weight twice`,
	} {
		option, value, _ := strings.Cut(pair, "=")
		got := convert(optioned("portolan.io/"+option, value, "portolan.io/slow-start", "2s"), nil)
		if option == "slow-start" {
			got = convert(optioned("portolan.io/"+option, value), nil)
		}
		if len(got.Complaints) != 1 || got.Complaints[0].Option != "portolan.io/"+option || got.Complaints[0].Value != value ||
			!strings.Contains(got.Complaints[0].Reason, want) {
			t.Errorf("%s: %v, want %q", pair, got.Complaints, want)
		}
		if len(got.Ports) != 1 || (option != "slow-start" && got.SlowStart != 2*time.Second) {
			t.Errorf("%s: something else is lost: %+v", pair, got)
		}
	}
}

// Weights by node, zone, address and network; the most specific counts.
func TestWeights(t *testing.T) {
	zoned := testSlice("a", func(s *discovery.EndpointSlice) {
		for i, at := range []string{"n1/near", "n1/far", "n2/near", "/near", "n3/"} {
			node, zone, _ := strings.Cut(at, "/")
			if node != "" {
				s.Endpoints[i].NodeName = &node
			}
			if zone != "" {
				s.Endpoints[i].Zone = &zone
			}
		}
	}, "10.0.0.1", "10.0.0.2", "10.0.1.3", "10.0.1.4", "10.0.1.5")
	for text, want := range map[string]string{
		"10.0.0.1=3": "3 1 1 1 1",
		"10.0.0.0/24=3, 10.0.0.2=5, 10.0.0.0/16=2": "3 5 2 2 2",
		"node/n1=2":                    "2 2 1 1 1",
		"zone/near=4,node/n1=2,*=7":    "2 2 4 4 7",
		"zone/near = 4 , 10.0.0.1 = 0": "0 1 4 4 1",
		"*=0,node/n2=1000":             "0 0 1000 0 0",
		"fd00::/64=9":                  "1 1 1 1 1",
	} {
		svc := convert(optioned("portolan.io/weights", text), []*discovery.EndpointSlice{zoned})
		var got []string
		for _, e := range svc.Ports[0].Endpoints {
			got = append(got, fmt.Sprint(e.Weight.Value()))
		}
		if all := strings.Join(got, " "); all != want || svc.Complaints != nil {
			t.Errorf("%q: %s, want %s; %v", text, all, want, svc.Complaints)
		}
	}
}

// FuzzWeights: what is read is within its bounds and gives every endpoint a weight.
func FuzzWeights(f *testing.F) {
	for _, s := range []string{"10.0.0.1=3,*=1", "zone/a=0", "fd00::/64=1000", "=,=", "10.0.0.0/8=1,10.0.0.0/8=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := parseWeights(text)
		if err != nil {
			return
		}
		list := prefixes([]string{"10.0.0.1/32", "fd00::1/128"})
		for _, p := range list {
			if v := w.of(p.Addr(), "n", "a").Value(); v < 0 || v > int(service.MaxWeight) {
				t.Errorf("%q gives %v the weight %d", text, p.Addr(), v)
			}
		}
		if slices.Contains([]string{"", "*"}, strings.TrimSpace(text)) {
			t.Errorf("%q was taken", text)
		}
	})
}
