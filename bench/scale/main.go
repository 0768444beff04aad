// Command scale works out what a very large cluster carries when EndpointSlices
// change all the time: bytes to every node, what the API servers send, and how far
// behind a proxy is that needs so long for a sync. It prints the tables of
// docs/scale.md.
package main

import (
	"fmt"
	"io"
	"os"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan/bench/figures"
)

// cluster is what is worked out.
type cluster struct {
	nodes, services int
	rate            float64 // EndpointSlice changes a second
}

var large = cluster{nodes: 5000, services: 45000, rate: 1000}

func main() {
	if err := tables(os.Stdout, large); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tables(out io.Writer, c cluster) error {
	traffic, err := wire(c)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, traffic+"\n"+behind(c))
	return err
}

// wire is the table of what is sent.
func wire(c cluster) (string, error) {
	text := "| endpoints of a slice | bytes of an event | to each node | from the API servers to all nodes | first list of a node |\n|---|---|---|---|---|\n"
	service := size(newService())
	for _, endpoints := range []int{1, 10, 100} {
		event, err := eventSize(newSlice(endpoints))
		if err != nil {
			return "", err
		}
		node := float64(event) * c.rate
		list := float64(c.services) * float64(service+size(newSlice(endpoints)))
		text += fmt.Sprintf("| %d | %s | %s Mbit/s | %s Gbit/s | %s MB |\n", endpoints, figures.Count(event),
			figures.Number(8*node/1e6), figures.Number(8*node*float64(c.nodes)/1e9), figures.Number(list/1e6))
	}
	return text, nil
}

// eventSize is what a change takes on a watch by protobuf: the object, the envelope
// of its kind, the event around it, and the length before that.
func eventSize(s *discovery.EndpointSlice) (int, error) {
	object, err := s.Marshal()
	if err != nil {
		return 0, fmt.Errorf("scale: %w", err)
	}
	const envelope = 4 + 2 + 2 + len("discovery.k8s.io/v1") + 2 + len("EndpointSlice") + 8
	const event = 2 + len("MODIFIED") + 8 + 4
	return len(object) + envelope + event, nil
}

func size(o interface{ Size() int }) int { return o.Size() }

// Objects as controllers make them, with their labels and owners; names and
// addresses of usual length. Managed fields are there, since watches carry them.

func newSlice(endpoints int) *discovery.EndpointSlice {
	node, zone, ready, port, name, tcp := "worker-01234.example.com", "zone-a", true, int32(8080), "http", v1.ProtocolTCP
	s := &discovery.EndpointSlice{ObjectMeta: meta("checkout-service-x7k2p"), AddressType: discovery.AddressTypeIPv4}
	s.Labels = map[string]string{discovery.LabelServiceName: "checkout-service", discovery.LabelManagedBy: "endpointslice-controller.k8s.io", "app": "checkout"}
	s.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05.678901234Z"}
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "checkout-service", UID: uid, Controller: &ready, BlockOwnerDeletion: &ready}}
	s.Ports = []discovery.EndpointPort{{Name: &name, Port: &port, Protocol: &tcp}}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.128.%d.%d", i/250, 1+i%250)},
			Conditions: discovery.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: &ready},
			NodeName:   &node, Zone: &zone,
			TargetRef: &v1.ObjectReference{Kind: "Pod", Namespace: s.Namespace, Name: "checkout-7d9c6b5f4-x7k2p", UID: uid},
		})
	}
	return s
}

func newService() *v1.Service {
	s := &v1.Service{ObjectMeta: meta("checkout-service")}
	s.Labels = map[string]string{"app": "checkout", "team": "payments"}
	s.Spec = v1.ServiceSpec{
		Selector: map[string]string{"app": "checkout"}, Type: v1.ServiceTypeClusterIP, SessionAffinity: v1.ServiceAffinityNone,
		ClusterIP: "10.96.123.234", ClusterIPs: []string{"10.96.123.234"}, IPFamilies: []v1.IPFamily{v1.IPv4Protocol},
		Ports: []v1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: v1.ProtocolTCP}},
	}
	return s
}

const uid types.UID = "01234567-89ab-cdef-0123-456789abcdef"

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, GenerateName: "checkout-service-", Namespace: "payments-production", UID: uid, ResourceVersion: "1234567890", Generation: 42,
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "discovery.k8s.io/v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(string(make([]byte, 480))),
		}},
	}
}
