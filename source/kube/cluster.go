package kube

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"

	"portolan/service"
)

// Cluster collects API objects and turns them into Snapshots. Only the Services
// whose objects changed since the last Snapshot are converted again. It is not
// safe for use by several goroutines.
type Cluster struct {
	settings Settings
	services map[service.Name]*Service // those that are not Ignored
	slices   map[service.Name][]*Slice // by Service, sorted by name
	cidrs    map[string]*networking.ServiceCIDR
	node     *v1.Node
	peers    map[string]Peer
	dirty    map[service.Name]bool
	last     *service.Snapshot
	wasLarge func() bool // nil once it was asked, or need not be
}

// NewCluster returns a Cluster without objects.
func NewCluster(settings Settings) *Cluster {
	return &Cluster{
		settings: settings,
		services: map[service.Name]*Service{},
		slices:   map[service.Name][]*Slice{},
		cidrs:    map[string]*networking.ServiceCIDR{},
		peers:    map[string]Peer{},
		dirty:    map[service.Name]bool{},
		last:     &service.Snapshot{},
	}
}

// StartLarge makes the cluster begin as a large one if the rules in force were written
// for one: it stays one down to service.LargeClusterOff endpoints. That is asked at most
// once, since it takes long where there are many rules, and only if the first Snapshot
// depends on it.
func (c *Cluster) StartLarge(was func() bool) { c.wasLarge = was }

// PutService adds a Service or takes the place of the one of its name.
func (c *Cluster) PutService(svc *Service) {
	name := svc.model.Name
	if svc.ignored {
		delete(c.services, name)
	} else {
		c.services[name] = svc
	}
	c.dirty[name] = true
}

// DeleteService removes a Service; its slices stay until they are deleted.
func (c *Cluster) DeleteService(name service.Name) {
	delete(c.services, name)
	c.dirty[name] = true
}

// PutSlice adds an EndpointSlice or takes the place of the one of its name and owner.
// Slices of headless Services, or that name no Service, are ignored.
func (c *Cluster) PutSlice(s *Slice) {
	if s.owner.Name == "" {
		return
	}
	list := c.slices[s.owner]
	i, is := slices.BinarySearchFunc(list, s.name, sliceNamed)
	if is {
		list[i] = s
	} else {
		c.slices[s.owner] = slices.Insert(list, i, s)
	}
	c.dirty[s.owner] = true
}

// DeleteSlice removes the EndpointSlice of that name from the Service that it named
// when it was put.
func (c *Cluster) DeleteSlice(owner service.Name, name string) {
	list := c.slices[owner]
	i, is := slices.BinarySearchFunc(list, name, sliceNamed)
	if !is {
		return
	}
	if len(list) == 1 {
		delete(c.slices, owner)
	} else {
		c.slices[owner] = slices.Delete(list, i, i+1)
	}
	c.dirty[owner] = true
}

func sliceNamed(s *Slice, name string) int { return cmp.Compare(s.name, name) }

// PutNode tells about a Node. Of those of another name only Peers tells.
func (c *Cluster) PutNode(node *v1.Node) {
	c.peers[node.Name] = ConvertPeer(node)
	if node.Name == c.settings.NodeName {
		c.node = node
	}
}

// DeleteNode forgets a Node.
func (c *Cluster) DeleteNode(name string) {
	delete(c.peers, name)
	if name == c.settings.NodeName {
		c.node = nil
	}
}

// PutServiceCIDR adds a ServiceCIDR or takes the place of the one of its name.
func (c *Cluster) PutServiceCIDR(o *networking.ServiceCIDR) { c.cidrs[o.Name] = o }

// DeleteServiceCIDR forgets a ServiceCIDR.
func (c *Cluster) DeleteServiceCIDR(name string) { delete(c.cidrs, name) }

// Configure changes the settings, such as local addresses that came or went.
func (c *Cluster) Configure(change func(*Settings)) { change(&c.settings) }

// Snapshot returns everything that is known now. Without a change since the
// last call it returns the same Snapshot.
func (c *Cluster) Snapshot() *service.Snapshot {
	var put []*service.Service
	var gone []service.Name
	for name := range c.dirty {
		last := c.last.Service(name)
		if s := c.services[name]; s != nil {
			// A change that means nothing to us, such as an annotation, is none.
			if svc := s.with(c.slices[name]); reflect.DeepEqual(svc, last) {
				s.model = last
			} else {
				put = append(put, svc)
			}
		} else if last != nil {
			gone = append(gone, name)
		}
	}
	clear(c.dirty)
	node := ConvertNode(c.settings, c.node)
	node.ServiceCIDRs = c.serviceCIDRs()
	node.LargeCluster = c.last.Node.LargeCluster
	if len(put) > 0 || len(gone) > 0 || !node.Equal(c.last.Node) || node.Leaving != c.last.Node.Leaving {
		next := c.last.With(node, put, gone)
		if c.wasLarge != nil && next.BetweenThresholds() {
			next.Node.LargeCluster = c.wasLarge()
		}
		c.last, c.wasLarge = next, nil
	}
	return c.last
}

// serviceCIDRs is the union of all ServiceCIDRs. One that is being deleted counts
// until it is gone, as in kube-proxy: Services may still have its addresses.
func (c *Cluster) serviceCIDRs() []netip.Prefix {
	var out []netip.Prefix
	for _, o := range c.cidrs {
		for _, p := range prefixes(o.Spec.CIDRs) {
			if p.Bits() > 0 { // all addresses are no Services'
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}
