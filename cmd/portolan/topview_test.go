package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"portolan/conntrack"
	"portolan/service"
)

// skewed is what top sees of a Service to which an endpoint was added while the other
// one had 20 long connections.
func skewed() topView {
	port := func(name, port string) service.PortName {
		return service.PortName{Service: service.Name{Namespace: "default", Name: name}, Port: port}
	}
	addr := netip.MustParseAddrPort
	return topView{
		at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), during: 2 * time.Second, entries: 31, most: 262144,
		loads: []conntrack.Load{
			{Name: port("web", "http"), Protocol: service.TCP, Port: 80, Family: service.IPv4, Live: 20, New: 3, Endpoints: []conntrack.EndpointLoad{
				{Addr: addr("10.244.0.5:8080"), State: conntrack.Ready, Live: 20, Expected: 10, New: 3},
				{Addr: addr("10.244.0.6:8080"), State: conntrack.Ready, Expected: 10},
			}},
			{Name: port("dns", ""), Protocol: service.UDP, Port: 53, Family: service.IPv6, Live: 3, Unreplied: 1, Stale: 2, Endpoints: []conntrack.EndpointLoad{
				{Addr: addr("[fd00:244::5]:53"), State: conntrack.Ready, Live: 1, Expected: 1.5},
				{Addr: addr("[fd00:244::6]:53"), State: conntrack.Ready, Live: 1, Expected: 1.5, Unreplied: 1},
				{Addr: addr("[fd00:244::9]:53"), State: conntrack.Gone, Live: 1, Stale: 1},
			}},
		},
	}
}

const skewedText = `31 of at most 262144 connections tracked, at 03:04:05
SERVICE           PORT    ENDPOINT          STATE  LIVE  EXPECTED  SKEW   NEW/S  UNREPLIED  STALE
default/web:http  80/tcp  IPv4                     20              50%    1.5    0          0
                          10.244.0.5:8080   ready  20    10.0      +10.0  1.5    0          0
                          10.244.0.6:8080   ready  0     10.0      -10.0  0.0    0          0
default/dns       53/udp  IPv6                     3               33%    0.0    1          2
                          [fd00:244::5]:53  ready  1     1.5       -0.5   0.0    0          0
                          [fd00:244::9]:53  gone   1     0.0       +1.0   0.0    0          1
                          and 1 more                                                        
`

func TestTopText(t *testing.T) {
	var b strings.Builder
	v := skewed()
	v.text(&b, 2)
	if b.String() != skewedText {
		t.Errorf("got\n%s\nwant\n%s", b.String(), skewedText)
	}
	for _, c := range []struct {
		lost, deaf bool
		want       string
	}{{true, false, "NEW/S is too low"}, {false, true, "NEW/S is not known"}} {
		b.Reset()
		v.lost, v.deaf = c.lost, c.deaf
		v.text(&b, 0)
		if !strings.Contains(b.String(), c.want) || strings.Contains(b.String(), "more  ") {
			t.Errorf("lost %v, deaf %v:\n%s", c.lost, c.deaf, b.String())
		}
	}
}

func TestTopJSON(t *testing.T) {
	var b strings.Builder
	v := skewed()
	v.loads = v.loads[:1]
	if err := v.print(&b, topFlags{output: "json"}); err != nil {
		t.Fatal(err)
	}
	const want = `{
  "apiVersion": "portolan.io/v1",
  "time": "2026-01-02T03:04:05Z",
  "seconds": 2,
  "lost": false,
  "entries": 31,
  "maxEntries": 262144,
  "ports": [
    {
      "namespace": "default",
      "service": "web",
      "portName": "http",
      "port": 80,
      "protocol": "tcp",
      "family": "IPv4",
      "affinity": false,
      "live": 20,
      "skew": 0.5,
      "misplaced": 10,
      "newPerSecond": 1.5,
      "unreplied": 0,
      "stale": 0,
      "endpoints": [
        {
          "address": "10.244.0.5:8080",
          "state": "ready",
          "live": 20,
          "expected": 10,
          "newPerSecond": 1.5,
          "unreplied": 0,
          "stale": 0
        },
        {
          "address": "10.244.0.6:8080",
          "state": "ready",
          "live": 0,
          "expected": 10,
          "newPerSecond": 0,
          "unreplied": 0,
          "stale": 0
        }
      ]
    }
  ]
}
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

func TestRebalanceText(t *testing.T) {
	for _, c := range []struct {
		fraction float64
		want     string
	}{
		{0.5, `default/web:http, port 80, IPv4: 20 connections, skew 50%
  10.244.0.5:8080 carries 20, its share is 10.0: at most 10 are reset, probably 10
  cost: at most 10 connections are reset once and have to connect again, probably 10, in at least 2s
  then the skew is probably 25%
`},
		{0.01, `default/web:http, port 80, IPv4: 20 connections, skew 50%
  10.244.0.5:8080 carries 20, its share is 10.0: at most 0 are reset, probably 0
  the fraction allows no connection to be reset: nothing to do
`},
	} {
		var b strings.Builder
		printRebalancePlan(&b, conntrack.PlanRebalance(skewed().loads[0], c.fraction), 5)
		if b.String() != c.want {
			t.Errorf("fraction %v: got\n%s\nwant\n%s", c.fraction, b.String(), c.want)
		}
	}
}
