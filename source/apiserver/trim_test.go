package apiserver

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"portolan/service"
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

// A proxy reads the same of a trimmed Node as of a whole one.
func TestTrimmedMeansTheSame(t *testing.T) {
	whole := decode[v1.Node](t, fullNode)
	trimmed := whole.DeepCopy()
	trimNode(trimmed)
	for _, mode := range []kube.DetectMode{kube.DetectNodeCIDR, kube.DetectClusterCIDR} {
		settings := kube.Settings{NodeName: "node1", DetectMode: mode, NodePortsPrimary: true}
		a, b := kube.ConvertNode(settings, whole), kube.ConvertNode(settings, trimmed)
		if !a.Equal(b) || a.Leaving != b.Leaving || a.Zone != "near" || !a.Leaving {
			t.Errorf("Node: whole %+v, trimmed %+v", a, b)
		}
	}
}

// What no proxy reads is gone.
func TestTrimmedIsSmall(t *testing.T) {
	n := decode[v1.Node](t, fullNode)
	trimNode(n)
	m := n.ObjectMeta
	if m.ManagedFields != nil || len(m.Annotations) > 0 || len(m.Labels) > 1 || m.OwnerReferences != nil || m.UID == "" || m.ResourceVersion == "" {
		t.Errorf("metadata %+v", m)
	}
	if n.Status.Images != nil {
		t.Error("fields that no proxy reads are kept")
	}
}

// A list is collected in the form in which it is kept, whether the API server streams
// it or not.
func TestFormWhileListed(t *testing.T) {
	slice := decode[discovery.EndpointSlice](t, fullSlice)
	cluster := kube.NewCluster(kube.Settings{NodeName: "node1"})
	s := New(&Client{}, cluster, Options{NodeName: "node1", Log: slog.New(slog.DiscardHandler)})
	early, err := s.slices.Transformer()(slice)
	if err != nil {
		t.Fatal(err)
	}
	if _, is := early.(item[*kube.Slice]); !is {
		t.Fatalf("%T is kept of a list under way", early)
	}
	for _, list := range [][]any{{early}, {slice}} {
		if err := s.services.Replace([]any{decode[v1.Service](t, fullService)}, "9"); err != nil {
			t.Fatal(err)
		}
		if err := s.slices.Replace(list, "9"); err != nil {
			t.Fatal(err)
		}
		svc := cluster.Snapshot().Service(service.Name{Namespace: "default", Name: "web"})
		if svc == nil || svc.EndpointCount() != 6 || svc.AffinityTimeout != 77*time.Second || svc.SlowStart != 30*time.Second || svc.Ports[1].Endpoints[0].Weight != 3 {
			t.Fatalf("read %+v", svc)
		}
		if err := s.slices.Replace(nil, "10"); err != nil {
			t.Fatal(err)
		}
		if n := cluster.Snapshot().Endpoints(); n != 0 {
			t.Errorf("%d endpoints are left", n)
		}
	}
	if _, err := s.slices.Transformer()(&v1.Service{}); err == nil {
		t.Error("a Service passed for an EndpointSlice")
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
