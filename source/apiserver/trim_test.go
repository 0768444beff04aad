package apiserver

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan/source/kube"
)

const fullService = `{
"kind": "Service", "apiVersion": "v1",
"metadata": {"name": "web", "namespace": "default", "uid": "u-1", "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z",
  "labels": {"app": "web"}, "annotations": {"much": "text", "portolan.io/weights": "zone/near=3,node/node2=2", "portolan.io/slow-start": "30s"}, "managedFields": [{"manager": "kubectl", "operation": "Update"}],
  "finalizers": ["service.kubernetes.io/load-balancer-cleanup"], "ownerReferences": [{"name": "x", "kind": "Y", "apiVersion": "v1", "uid": "z"}]},
"spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00:96::1"], "ipFamilies": ["IPv4", "IPv6"],
  "ipFamilyPolicy": "PreferDualStack", "selector": {"app": "web"}, "externalIPs": ["203.0.113.7"],
  "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30080}, {"name": "dns", "protocol": "UDP", "port": 53, "nodePort": 30053}],
  "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 77}}, "loadBalancerIP": "198.51.100.7",
  "loadBalancerSourceRanges": ["192.0.2.0/24", "2001:db8::/64"], "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local",
  "healthCheckNodePort": 32000, "publishNotReadyAddresses": true, "allocateLoadBalancerNodePorts": true, "loadBalancerClass": "x"},
"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7", "ipMode": "VIP"}, {"ip": "198.51.100.8", "ipMode": "Proxy"}, {"hostname": "x.example"}]},
  "conditions": [{"type": "X", "status": "True", "reason": "Y", "message": "", "lastTransitionTime": null}]}}`

const fullSlice = `{
"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
"metadata": {"name": "web-1", "namespace": "default", "uid": "u-2", "resourceVersion": "8", "creationTimestamp": "2026-01-02T03:04:05Z", "generateName": "web-",
  "labels": {"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "x", "app": "web"},
  "annotations": {"much": "text", "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z"}, "managedFields": [{"manager": "x"}]},
"ports": [{"name": "http", "protocol": "TCP", "port": 8080, "appProtocol": "http"}, {"name": "dns", "protocol": "UDP", "port": 5353}],
"endpoints": [
  {"addresses": ["10.244.1.1", "10.244.1.2"], "conditions": {"ready": true, "serving": true, "terminating": false}, "hostname": "a", "nodeName": "node1", "zone": "near",
   "targetRef": {"kind": "Pod", "name": "a", "namespace": "default", "uid": "u"}, "hints": {"forZones": [{"name": "near"}], "forNodes": [{"name": "node1"}]}, "deprecatedTopology": {"x": "y"}},
  {"addresses": ["10.244.2.1"], "conditions": {"ready": false, "serving": true, "terminating": true}, "nodeName": "node2"},
  {"addresses": ["10.244.2.2"], "conditions": {}, "nodeName": "node1"},
  {"addresses": [], "conditions": {}}]}`

const fullNode = `{
"kind": "Node", "apiVersion": "v1",
"metadata": {"name": "node1", "uid": "u-3", "resourceVersion": "9", "labels": {"topology.kubernetes.io/zone": "near", "kubernetes.io/hostname": "node1"},
  "annotations": {"x": "y"}, "managedFields": [{"manager": "kubelet"}]},
"spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:244:1::/64"], "providerID": "x", "taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
"status": {"addresses": [{"type": "ExternalIP", "address": "203.0.113.11"}, {"type": "InternalIP", "address": "192.0.2.11"}, {"type": "Hostname", "address": "node1"}],
  "images": [{"names": ["x"], "sizeBytes": 1}], "conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"machineID": "x"}}}`

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// A proxy reads the same from trimmed objects as from whole ones.
func TestTrimmedMeansTheSame(t *testing.T) {
	wholeService, wholeSlice, wholeNode := decode[v1.Service](t, fullService), decode[discovery.EndpointSlice](t, fullSlice), decode[v1.Node](t, fullNode)
	trimmedService, trimmedSlice, trimmedNode := wholeService.DeepCopy(), wholeSlice.DeepCopy(), wholeNode.DeepCopy()
	trimService(trimmedService)
	trimSlice(trimmedSlice, names{})
	trimNode(trimmedNode)

	whole := kube.Convert(wholeService, []*discovery.EndpointSlice{wholeSlice})
	if len(whole.Ports) != 2 || len(whole.Ports[1].Endpoints) != 3 || whole.HealthCheckNodePort == 0 || whole.AffinityTimeout != 77*time.Second ||
		whole.SlowStart != 30*time.Second || whole.Ports[1].Endpoints[0].Weight != 3 {
		t.Fatalf("the example shows too little: %+v", whole)
	}
	trimmed := kube.Convert(trimmedService, []*discovery.EndpointSlice{trimmedSlice})
	if diff := cmp.Diff(whole, trimmed, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("Service (- whole, + trimmed):\n%s", diff)
	}
	for _, mode := range []kube.DetectMode{kube.DetectNodeCIDR, kube.DetectClusterCIDR} {
		settings := kube.Settings{NodeName: "node1", DetectMode: mode, NodePortsPrimary: true}
		a, b := kube.ConvertNode(settings, wholeNode), kube.ConvertNode(settings, trimmedNode)
		if !a.Equal(b) || a.Leaving != b.Leaving || a.Zone != "near" || !a.Leaving {
			t.Errorf("Node: whole %+v, trimmed %+v", a, b)
		}
	}
}

// What no proxy reads is gone.
func TestTrimmedIsSmall(t *testing.T) {
	s, e, n := decode[v1.Service](t, fullService), decode[discovery.EndpointSlice](t, fullSlice), decode[v1.Node](t, fullNode)
	shared := names{}
	trimService(s)
	trimSlice(e, shared)
	trimNode(n)
	for _, m := range []metav1.ObjectMeta{s.ObjectMeta, e.ObjectMeta, n.ObjectMeta} {
		if m.ManagedFields != nil || len(m.Annotations) > 2 || m.Annotations["much"] != "" || len(m.Labels) > 1 || m.OwnerReferences != nil || m.UID == "" || m.ResourceVersion == "" {
			t.Errorf("metadata %+v", m)
		}
	}
	if s.Spec.Selector != nil || s.Status.Conditions != nil || n.Status.Images != nil {
		t.Error("fields that no proxy reads are kept")
	}
	if len(e.Endpoints) != cap(e.Endpoints) || e.Endpoints[0].TargetRef != nil || len(e.Endpoints[0].Addresses) != 1 {
		t.Errorf("endpoints %+v", e.Endpoints)
	}
	if e.Endpoints[0].NodeName != e.Endpoints[2].NodeName {
		t.Error("the name of one node is kept twice")
	}
	if again := decode[discovery.EndpointSlice](t, fullSlice); true {
		trimSlice(again, shared)
		if again.Endpoints[1].NodeName != e.Endpoints[1].NodeName || again.Endpoints[1].Conditions.Ready != e.Endpoints[1].Conditions.Ready {
			t.Error("two slices do not share")
		}
	}
}

// What is no list of an API server passes for no list.
func TestTruthful(t *testing.T) {
	whole := &v1.ServiceList{}
	whole.ResourceVersion = "7"
	if err := truthful(whole); err != nil {
		t.Error(err)
	}
	if truthful(&v1.ServiceList{}) == nil {
		t.Error("a list of no version was taken")
	}
}
