package kube

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"portolan/service"
)

// OptionPrefix begins the annotations of a Service that are for this proxy.
const OptionPrefix = "portolan.io/"

// The options, by annotation; docs/annotations.md describes them.
var options = map[string]func(*service.Service, *weights, string) error{
	OptionPrefix + "algorithm":          setAlgorithm,
	OptionPrefix + "ipvs-scheduler":     setScheduler,
	OptionPrefix + "weights":            func(_ *service.Service, w *weights, value string) (err error) { *w, err = parseWeights(value); return },
	OptionPrefix + "slow-start":         setSlowStart,
	OptionPrefix + "no-local-endpoints": setNoLocalEndpoints,
}

// setOptions reads the annotations. One that is wrong is noted, and counts as not
// given.
func setOptions(out *service.Service, svc *v1.Service) weights {
	var w weights
	for _, key := range slices.Sorted(maps.Keys(svc.Annotations)) {
		if !strings.HasPrefix(key, OptionPrefix) {
			continue
		}
		value := svc.Annotations[key]
		set, known := options[key]
		err := fmt.Errorf("it is not known; %s are", strings.Join(slices.Sorted(maps.Keys(options)), ", "))
		if known {
			err = set(out, &w, strings.TrimSpace(value))
		}
		if err != nil {
			out.Complaints = append(out.Complaints, service.Complaint{Option: key, Value: value, Reason: err.Error()})
		}
	}
	return w
}

func setAlgorithm(out *service.Service, _ *weights, value string) error {
	for _, a := range []service.Algorithm{service.Random, service.RoundRobin} {
		if value == a.String() {
			out.Algorithm = a
			return nil
		}
	}
	return fmt.Errorf("must be %s or %s", service.Random, service.RoundRobin)
}

// schedulers are those that Linux has, by its names.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "sed", "nq", "fo", "ovf", "mh", "twos"}

func setScheduler(out *service.Service, _ *weights, value string) error {
	if !slices.Contains(schedulers, value) {
		return fmt.Errorf("must be one of %s", strings.Join(schedulers, ", "))
	}
	out.Scheduler = value
	return nil
}

// The bounds of slow-start. A step, a tenth of it, is a write for each Service that
// has a fresh endpoint.
const (
	leastSlowStart = time.Second
	mostSlowStart  = time.Hour
)

func setSlowStart(out *service.Service, _ *weights, value string) error {
	d, err := time.ParseDuration(value)
	if err != nil || d < leastSlowStart || d > mostSlowStart {
		return fmt.Errorf("must be a duration from %v to %v, such as 30s", leastSlowStart, mostSlowStart)
	}
	out.SlowStart = d
	return nil
}

func setNoLocalEndpoints(out *service.Service, _ *weights, value string) error {
	switch value {
	case "reject":
		out.RejectNoLocal = true
	case "drop":
	default:
		return errors.New("must be reject or drop")
	}
	return nil
}

// weights say how much of the traffic the endpoints of a Service get. The nil value
// gives all the usual weight.
type weights map[selector]service.Weight

// selector is one kind of what a weight is given to: a network of addresses, a node,
// a zone, or with none of them everybody.
type selector struct {
	network    netip.Prefix
	node, zone string
}

// parseWeights reads "SELECTOR=WEIGHT, ...". A selector is an address or a network,
// node/NAME, zone/NAME, or "*".
func parseWeights(text string) (weights, error) {
	out := weights{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		who, number, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%s is not SELECTOR=WEIGHT", service.Shown(part))
		}
		s, err := parseSelector(strings.TrimSpace(who))
		if err != nil {
			return nil, err
		}
		if _, twice := out[s]; twice {
			return nil, fmt.Errorf("%s has a weight twice", service.Shown(who))
		}
		n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 16)
		switch {
		case err != nil || n > uint64(service.MaxWeight):
			return nil, fmt.Errorf("the weight of %s must be a whole number from 0 to %d", service.Shown(who), service.MaxWeight)
		case n == 0:
			out[s] = service.Weightless
		default:
			out[s] = service.Weight(n)
		}
	}
	return out, nil
}

// parseSelector reads what a weight is for: "node/NAME", "zone/NAME", an address, a CIDR, or
// "*".
func parseSelector(text string) (selector, error) {
	if node, ok := strings.CutPrefix(text, "node/"); ok && node != "" {
		return selector{node: node}, nil
	}
	if zone, ok := strings.CutPrefix(text, "zone/"); ok && zone != "" {
		return selector{zone: zone}, nil
	}
	if text == "*" {
		return selector{}, nil
	}
	if addr, err := parseAddr(text); err == nil {
		return selector{network: netip.PrefixFrom(addr, addr.BitLen())}, nil
	}
	if p, err := parsePrefix(text); err == nil {
		return selector{network: p}, nil
	}
	return selector{}, fmt.Errorf("%s is neither an address, a network, node/NAME, zone/NAME nor *", service.Shown(text))
}

// of finds the weight of an endpoint: that of the smallest network it is in, else of
// its node, else of its zone, else of everybody.
func (w weights) of(addr netip.Addr, node, zone string) service.Weight {
	if len(w) == 0 {
		return 0
	}
	found, bits := service.Weight(0), -1
	for s, weight := range w {
		if s.network.IsValid() && s.network.Bits() > bits && s.network.Contains(addr) {
			found, bits = weight, s.network.Bits()
		}
	}
	if bits >= 0 {
		return found
	}
	if weight, ok := w[selector{node: node}]; ok && node != "" {
		return weight
	}
	if weight, ok := w[selector{zone: zone}]; ok && zone != "" {
		return weight
	}
	return w[selector{}]
}
