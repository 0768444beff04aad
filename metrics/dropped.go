package metrics

import (
	"context"
	"iter"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan/service"
)

// ReadDropped reads what the kernel counted in one family.
type ReadDropped func(context.Context) ([]service.Dropped, error)

// WatchDropped has the metrics tell how many packets the kernel did not let through,
// by Service and reason. written is what the rules of a family were made from. It is
// called once, before anything is written and before Handler answers: what the kernel
// counted until then another process has told of.
func (m *Metrics) WatchDropped(read map[service.Family]ReadDropped, written func(service.Family) *service.Snapshot) {
	d := &dropped{written: written}
	for f, read := range read {
		o := &dropCounts{family: f, read: read}
		_ = o.look(nil) // whoever scrapes sees that it fails
		d.families = append(d.families, o)
	}
	m.registry.MustRegister(d)
}

var droppedPackets = desc(portolan("dropped_packets_total", "Packets to a Service that were refused or dropped, by reason; invalid ones are of no Service. A Service without any is not there."), "namespace", "service", "ip_family", "reason")

// dropped asks the kernel when somebody asks us.
type dropped struct {
	written  func(service.Family) *service.Snapshot
	families []*dropCounts
}

// Describe tells of the one metric.
func (d *dropped) Describe(out chan<- *prometheus.Desc) { out <- droppedPackets }

// Collect tells what is known where the kernel cannot be asked.
func (d *dropped) Collect(out chan<- prometheus.Metric) {
	for _, o := range d.families {
		if err := o.look(d.written(o.family)); err != nil {
			out <- prometheus.NewInvalidMetric(droppedPackets, err)
		}
		o.tell(out)
	}
}

// dropCounts adds up what was dropped in one family.
type dropCounts struct {
	family service.Family
	read   ReadDropped

	mu     sync.Mutex
	seen   map[dropPlace]dropSeen
	totals map[dropSeries]uint64
}

// dropPlace is what the kernel counts for, and dropSeries what we tell.
type dropPlace struct {
	spot
	reason service.DropReason
}

// spot is where packets went to; one without an address stands for a node port.
type spot struct {
	addr     netip.Addr
	protocol service.Protocol
	port     uint16
}

type dropSeries struct {
	service service.Name // zero for none
	reason  service.DropReason
}

type dropSeen struct {
	packets uint64
	owner   service.Name // as far as it was asked for
}

// readTimeout bounds how long one scrape waits for the kernel.
const readTimeout = 5 * time.Second

// look adds what the kernel counted since the last look, to the Services of the
// Snapshot; without one there is nobody to add it to.
func (o *dropCounts) look(s *service.Snapshot) error {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	list, err := o.read(ctx)
	if err != nil {
		return err
	}
	seen, more := o.since(list)
	if s != nil {
		o.add(s, seen, more)
	}
	o.seen = seen
	return nil
}

// since returns what was seen and what of it is new.
func (o *dropCounts) since(list []service.Dropped) (seen map[dropPlace]dropSeen, more map[dropPlace]uint64) {
	seen, more = make(map[dropPlace]dropSeen, len(list)), map[dropPlace]uint64{}
	for _, d := range list {
		place := dropPlace{spot{d.Addr, d.Protocol, d.Port}, d.Reason}
		before := o.seen[place]
		seen[place] = dropSeen{d.Packets, before.owner}
		switch {
		case d.Packets > before.packets:
			more[place] = d.Packets - before.packets
		case d.Packets > 0 && d.Packets < before.packets: // it began anew
			more[place] = d.Packets
		}
	}
	return seen, more
}

// add gives the packets that came since the last look to the Services that have the
// addresses now, and forgets Services that are gone.
func (o *dropCounts) add(s *service.Snapshot, seen map[dropPlace]dropSeen, more map[dropPlace]uint64) {
	if o.totals == nil {
		o.totals = map[dropSeries]uint64{}
	}
	for series := range o.totals {
		if series != (dropSeries{reason: service.DropInvalid}) && s.Service(series.service) == nil {
			delete(o.totals, series)
		}
	}
	owners := o.owners(s, seen, more)
	for place, n := range more {
		if place.reason == service.DropInvalid {
			o.totals[dropSeries{reason: service.DropInvalid}] += n
			continue
		}
		svc := owners[place.spot]
		if svc == nil {
			continue // it is gone
		}
		seen[place] = dropSeen{seen[place].packets, svc.Name}
		o.totals[dropSeries{svc.Name, o.reason(s.Node, svc, place)}] += n
	}
}

// owners finds the Service of each spot: the one that it was last time, or else one
// that is looked for among all.
func (o *dropCounts) owners(s *service.Snapshot, seen map[dropPlace]dropSeen, more map[dropPlace]uint64) map[spot]*service.Service {
	owners := map[spot]*service.Service{}
	unowned := map[spot]bool{}
	for place := range more {
		at := place.spot
		if svc := s.Service(seen[place].owner); svc != nil && answersAt(svc, at) {
			owners[at] = svc
		} else if place.reason != service.DropInvalid {
			unowned[at] = true
		}
	}
	if len(unowned) > 0 {
		findOwners(s, unowned, owners)
	}
	return owners
}

// findOwners looks through all Services for those that answer at the spots: who has the
// address goes before who has the node port.
func findOwners(s *service.Snapshot, unowned map[spot]bool, owners map[spot]*service.Service) {
	byNodePort := map[spot][]spot{}
	for at := range unowned {
		nodePort := spot{protocol: at.protocol, port: at.port}
		byNodePort[nodePort] = append(byNodePort[nodePort], at)
	}
	for svc := range s.All() {
		for at, isNodePort := range spots(svc) {
			if !isNodePort {
				if unowned[at] {
					owners[at] = svc
				}
				continue
			}
			for _, at := range byNodePort[at] {
				if owners[at] == nil {
					owners[at] = svc
				}
			}
		}
	}
}

// answersAt tells whether a Service has the address, or the port as a node port.
func answersAt(svc *service.Service, at spot) bool {
	for s, isNodePort := range spots(svc) {
		if s == at || isNodePort && s.port == at.port && s.protocol == at.protocol {
			return true
		}
	}
	return false
}

// spots are where a Service answers, and whether that is a node port.
func spots(svc *service.Service) iter.Seq2[spot, bool] {
	return func(yield func(spot, bool) bool) {
		for _, p := range svc.Ports {
			for _, list := range [...][]netip.Addr{svc.ClusterIPs, svc.ExternalIPs, svc.LoadBalancerIPs} {
				for _, addr := range list {
					if !yield(spot{addr, p.Protocol, p.Port}, false) {
						return
					}
				}
			}
			if p.NodePort != 0 && !yield(spot{protocol: p.Protocol, port: p.NodePort}, true) {
				return
			}
		}
	}
}

// reason corrects the one of a refusal that the Service asks for instead of a drop.
func (o *dropCounts) reason(node service.Node, svc *service.Service, place dropPlace) service.DropReason {
	if place.reason != service.DropNoEndpoints || !svc.RejectNoLocal {
		return place.reason
	}
	for _, p := range svc.Ports {
		if p.Protocol == place.protocol && (p.Port == place.port || p.NodePort == place.port) && service.Choose(node, svc, p, o.family).Any {
			return service.DropNoLocalEndpoints
		}
	}
	return place.reason
}

func (o *dropCounts) tell(out chan<- prometheus.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for series, n := range o.totals {
		out <- prometheus.MustNewConstMetric(droppedPackets, prometheus.CounterValue, float64(n),
			series.service.Namespace, series.service.Name, o.family.String(), string(series.reason))
	}
}
