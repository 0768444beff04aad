package apiserver

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan/service"
	"portolan/source/kube"
)

func (s *Source) putNode(old, node *v1.Node) {
	if old == nil && s.own != nil {
		s.log.Info("the own Node is there again", "node", node.Name)
	}
	s.own = node
	s.cluster.PutNode(node)
}

// removeNode: a Node that was deleted is one that is being deleted, and keeps its
// addresses and pod CIDRs, which this host has not lost: load balancers are told to
// leave, and packets go on.
func (s *Source) removeNode(name service.Name, _ *v1.Node) {
	s.log.Error("the own Node was deleted; its last addresses, pod CIDRs and zone stay in force", "node", name.Name)
	gone := s.own.DeepCopy()
	if gone.DeletionTimestamp == nil {
		now := metav1.Now()
		gone.DeletionTimestamp = &now
	}
	s.own = gone
	s.cluster.PutNode(gone)
}

func (s *Source) nodeListed(first bool, count int) {
	s.listed("nodes")(first, count)
	if first && count == 0 {
		s.log.Error("no Node has the name of this host; --hostname-override (or hostnameOverride) sets the name that kubelet registered",
			"name", s.options.NodeName)
	}
}

// starting is the time until everything is known that the first rules need.
type starting struct {
	source   *Source
	timer    <-chan time.Time
	patience int // 0: waits for all there is, 1: no longer for addresses, 2: nor for pod CIDRs
	waiting  bool
	done     bool
}

// over tells whether the first Snapshot may be told. It starts the timer that ends
// the wait for the Node.
func (st *starting) over() bool {
	if st.done {
		return true
	}
	s := st.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.services.full || !s.slices.full || !s.cidrs.full && !s.noCIDRs {
		return false
	}
	missing := s.nodeLacks()
	switch {
	case missing == "":
		st.done = true
	case !st.waiting:
		st.waiting = true
		st.timer = time.After(nodeWait)
		s.log.Info("waiting for the own Node", "node", s.options.NodeName, "missing", missing, "most", nodeWait)
	case st.patience == 1 && missing == lacksPodCIDRs && st.timer == nil:
		st.timer = time.After(podCIDRWait)
		s.log.Error("waiting on for the own Node", "node", s.options.NodeName, "missing", missing, "most", podCIDRWait)
	case st.patience == 1 && missing != lacksPodCIDRs, st.patience == 2:
		st.done = true
		s.log.Error("going on without the own Node being complete; Services that depend on it may be wrong until it is",
			"node", s.options.NodeName, "missing", missing)
	}
	return st.done
}

const lacksPodCIDRs = "pod CIDRs"

// nodeLacks names what is not known of the own Node.
func (s *Source) nodeLacks() string {
	if s.own == nil {
		return "the Node"
	}
	node := kube.ConvertNode(kube.Settings{DetectMode: kube.DetectNodeCIDR}, s.own)
	switch {
	case len(node.IPs) == 0:
		return "addresses"
	case s.options.PodCIDRs && len(node.Detector.CIDRs) == 0:
		return lacksPodCIDRs
	}
	return ""
}
