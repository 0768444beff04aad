package kube

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan/service"
)

// convert returns the model of a Service with the endpoints of its slices, nil
// for a Service that is Ignored.
func convert(svc *v1.Service, endpointSlices []*discovery.EndpointSlice) *service.Service {
	s := NewService(svc)
	if s.ignored {
		return nil
	}
	var kept []*Slice
	for _, s := range endpointSlices {
		kept = append(kept, NewSlice(s))
	}
	return s.with(kept)
}

func testService(change func(*v1.Service)) *v1.Service {
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeClusterIP, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			Ports: []v1.ServicePort{{Name: "http", Protocol: v1.ProtocolTCP, Port: 80}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

func testSlice(name string, change func(*discovery.EndpointSlice), addresses ...string) *discovery.EndpointSlice {
	s := &discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			Labels: map[string]string{discovery.LabelServiceName: "web"}},
		AddressType: discovery.AddressTypeIPv4,
		Ports:       []discovery.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(v1.ProtocolTCP)}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{Addresses: []string{a}})
	}
	if change != nil {
		change(s)
	}
	return s
}

func TestD21Ignored(t *testing.T) {
	tests := map[string]func(*v1.Service){
		"headless":      func(s *v1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
		"no cluster IP": func(s *v1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil },
		"ExternalName":  func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeExternalName },
		"D20 other proxy": func(s *v1.Service) {
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": ""}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			svc := testService(change)
			if Ignored(svc) == "" || convert(svc, nil) != nil {
				t.Errorf("not ignored")
			}
		})
	}
}

func endpointTexts(s *service.Service) string {
	var out []string
	for _, e := range s.Ports[0].Endpoints {
		text := e.Addr.String()
		if !e.Ready {
			text += "!ready"
		}
		if !e.Serving {
			text += "!serving"
		}
		if e.Terminating {
			text += "+terminating"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// Slices become endpoints, merged and sorted as text.
func TestEndpoints(t *testing.T) {
	terminating := func(s *discovery.EndpointSlice) {
		s.Endpoints[0].Conditions = discovery.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	}
	tests := []struct {
		name   string
		slices []*discovery.EndpointSlice
		want   string
	}{
		{"D22 several slices merge, sorted as text", []*discovery.EndpointSlice{testSlice("a", nil, "10.0.0.9"), testSlice("b", nil, "10.0.0.10")},
			"10.0.0.10:8080 10.0.0.9:8080"},
		{"D23 other address types", []*discovery.EndpointSlice{
			testSlice("a", func(s *discovery.EndpointSlice) { s.AddressType = discovery.AddressTypeFQDN }, "example.org"),
			testSlice("b", func(s *discovery.EndpointSlice) { s.AddressType = discovery.AddressTypeIPv6 }, "10.0.0.1", "fd00::1")},
			"[fd00::1]:8080"},
		{"D24 nil conditions", []*discovery.EndpointSlice{testSlice("a", nil, "10.0.0.1")}, "10.0.0.1:8080"},
		{"D24 serving nil, ready false", []*discovery.EndpointSlice{testSlice("a", func(s *discovery.EndpointSlice) {
			s.Endpoints[0].Conditions.Ready = new(false)
		}, "10.0.0.1")}, "10.0.0.1:8080!ready"},
		{"D25 running beats terminating, first", []*discovery.EndpointSlice{testSlice("a", terminating, "10.0.0.1"), testSlice("b", nil, "10.0.0.1")}, "10.0.0.1:8080"},
		{"D25 running beats terminating, last", []*discovery.EndpointSlice{testSlice("a", nil, "10.0.0.1"), testSlice("b", terminating, "10.0.0.1")}, "10.0.0.1:8080"},
		{"D26 numbers differ between slices", []*discovery.EndpointSlice{testSlice("a", nil, "10.0.0.1"),
			testSlice("b", func(s *discovery.EndpointSlice) { s.Ports[0].Port = new(int32(9090)) }, "10.0.0.2")}, "10.0.0.1:8080 10.0.0.2:9090"},
		{"D26 protocol differs", []*discovery.EndpointSlice{testSlice("a", func(s *discovery.EndpointSlice) { s.Ports[0].Protocol = new(v1.ProtocolUDP) }, "10.0.0.1")}, ""},
		{"D27 nil name", []*discovery.EndpointSlice{testSlice("a", func(s *discovery.EndpointSlice) { s.Ports[0].Name = nil }, "10.0.0.1")}, ""},
		{"D27 nil port", []*discovery.EndpointSlice{testSlice("a", func(s *discovery.EndpointSlice) { s.Ports[0].Port = nil }, "10.0.0.1")}, ""},
		{"D27 zero port", []*discovery.EndpointSlice{testSlice("a", func(s *discovery.EndpointSlice) { s.Ports[0].Port = new(int32(0)) }, "10.0.0.1")}, ""},
		{"nil protocol is TCP", []*discovery.EndpointSlice{testSlice("a", func(s *discovery.EndpointSlice) { s.Ports[0].Protocol = nil }, "10.0.0.1")}, "10.0.0.1:8080"},
		{"D28 leading zeros", []*discovery.EndpointSlice{testSlice("a", nil, "10.180.00.001")}, "10.180.0.1:8080"},
		{"D28 bad address left out", []*discovery.EndpointSlice{testSlice("a", nil, "nonsense", "fe80::1%eth0", "10.0.0.1")}, "10.0.0.1:8080"},
		{"no address", []*discovery.EndpointSlice{testSlice("a", func(s *discovery.EndpointSlice) { s.Endpoints[0].Addresses = nil }, "x")}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := endpointTexts(convert(testService(nil), tt.slices)); got != tt.want {
				t.Errorf("endpoints = %q, want %q", got, tt.want)
			}
		})
	}
}

// Every field of a Service that counts. Leading zeros are taken, and what cannot be read is
// left out.
func TestConvertService(t *testing.T) {
	svc := testService(func(s *v1.Service) {
		s.Spec.Type = v1.ServiceTypeLoadBalancer
		s.Spec.ClusterIPs = []string{"10.96.0.10", "fd00::a"}
		s.Spec.ExternalIPs = []string{"192.0.2.030", "bad", "2001:db8::1"}
		s.Spec.LoadBalancerSourceRanges = []string{" 203.0.113.000/025 ", "bad"}
		s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = new(v1.ServiceInternalTrafficPolicyLocal)
		s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
		s.Spec.HealthCheckNodePort = 32000
		s.Spec.Ports = []v1.ServicePort{{Name: "b", Protocol: v1.ProtocolUDP, Port: 53, NodePort: 30053}, {Name: "a", Port: 80}}
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{
			{IP: "198.51.100.7", IPMode: new(v1.LoadBalancerIPModeVIP)}, {IP: "198.51.100.8"},
			{IP: "198.51.100.9", IPMode: new(v1.LoadBalancerIPModeProxy)}, {Hostname: "lb.example"}}
	})
	addr := netip.MustParseAddr
	want := &service.Service{
		Name:            service.Name{Namespace: "default", Name: "web"},
		ClusterIPs:      []netip.Addr{addr("10.96.0.10"), addr("fd00::a")},
		ExternalIPs:     []netip.Addr{addr("192.0.2.30"), addr("2001:db8::1")},
		LoadBalancerIPs: []netip.Addr{addr("198.51.100.7"), addr("198.51.100.8")},
		SourceRanges:    []netip.Prefix{netip.MustParsePrefix("203.0.113.0/25")},
		InternalPolicy:  service.Local, ExternalPolicy: service.Local,
		AffinityTimeout: 3 * time.Hour, HealthCheckNodePort: 32000,
		Ports: []service.Port{
			{Name: "a", Protocol: service.TCP, Port: 80, Endpoints: []service.Endpoint{}},
			{Name: "b", Protocol: service.UDP, Port: 53, NodePort: 30053, Endpoints: []service.Endpoint{}}},
	}
	if diff := cmp.Diff(want, convert(svc, nil), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func TestExternalPolicyLocalNeedsAnAcceptingType(t *testing.T) {
	local := func(change func(*v1.Service)) service.Policy {
		return convert(testService(func(s *v1.Service) {
			s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
			change(s)
		}), nil).ExternalPolicy
	}
	if local(func(*v1.Service) {}) != service.Cluster {
		t.Error("counts for a plain ClusterIP Service")
	}
	if local(func(s *v1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }) != service.Local {
		t.Error("does not count with external IPs")
	}
	if local(func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeNodePort }) != service.Local {
		t.Error("does not count for NodePort")
	}
}

// Every field of a ServiceSpec is read or left alone on purpose: a new release
// of the API makes this test ask.
func TestEveryServiceFieldIsAccountedFor(t *testing.T) {
	read := "Ports ClusterIP ClusterIPs Type ExternalIPs SessionAffinity LoadBalancerSourceRanges ExternalTrafficPolicy " +
		"HealthCheckNodePort SessionAffinityConfig InternalTrafficPolicy"
	ignored := map[string]string{
		"Selector":                      "the endpoint slice controller has applied it",
		"LoadBalancerIP":                "a wish; status.loadBalancer says what was given",
		"ExternalName":                  "DNS only",
		"PublishNotReadyAddresses":      "the slice controller has put it into the ready condition",
		"IPFamilies":                    "clusterIPs say the same",
		"IPFamilyPolicy":                "for the API server's allocation",
		"AllocateLoadBalancerNodePorts": "for the API server's allocation",
		"LoadBalancerClass":             "for the load balancer's controller",
		"TrafficDistribution":           "acts through the hints of the slices",
	}
	spec := reflect.TypeFor[v1.ServiceSpec]()
	for i := range spec.NumField() {
		name := spec.Field(i).Name
		isRead := strings.Contains(" "+read+" ", " "+name+" ")
		if _, isIgnored := ignored[name]; isRead == isIgnored {
			t.Errorf("ServiceSpec.%s: read %v, ignored %v; it has to be one of both", name, isRead, isIgnored)
		}
	}
}

func TestClusterConvertsOnlyWhatChanged(t *testing.T) {
	c := NewCluster(Settings{NodeName: "a"})
	c.PutService(NewService(testService(nil)))
	c.PutService(NewService(testService(func(s *v1.Service) { s.Name, s.Spec.ClusterIP, s.Spec.ClusterIPs = "other", "10.96.0.11", nil })))
	first := c.Snapshot()
	if first.Len() != 2 || c.Snapshot() != first {
		t.Fatalf("%d Services; a second Snapshot is new: %v", first.Len(), c.Snapshot() != first)
	}
	slice := testSlice("x", nil, "10.0.0.1")
	c.PutSlice(NewSlice(slice))
	second := c.Snapshot()
	other := service.Name{Namespace: "default", Name: "other"}
	web := service.Name{Namespace: "default", Name: "web"}
	if second.Service(other) != first.Service(other) || second.Service(web) == first.Service(web) {
		t.Error("the wrong Services were converted again")
	}
	c.DeleteSlice(OwnerOf(slice), slice.Name)
	c.DeleteService(other)
	third := c.Snapshot()
	if third.Len() != 1 || len(third.Service(web).Ports[0].Endpoints) != 0 {
		t.Errorf("after deletion: %d Services, endpoints %v", third.Len(), third.Service(web).Ports[0].Endpoints)
	}
	for _, s := range []struct {
		of    *service.Snapshot
		count int
	}{{first, 0}, {second, 1}} {
		if got := s.of.Service(web).Ports[0].Endpoints; len(got) != s.count {
			t.Errorf("an earlier Snapshot has endpoints %v now, had %d", got, s.count)
		}
	}
	c.PutService(NewService(testService(nil)))
	if c.Snapshot() != third {
		t.Error("the same Service again made a new Snapshot")
	}
	c.PutNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{v1.LabelTopologyZone: "z"}}})
	if c.Snapshot() != third {
		t.Error("another Node made a new Snapshot")
	}
	if peers := c.Peers(); len(peers) != 1 || peers[0].Name != "b" {
		t.Errorf("peers %v", peers)
	}
	c.PutNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}}})
	if s := c.Snapshot(); s == third || !s.Node.Leaving || !s.Node.Equal(third.Node) {
		t.Error("D16 a Node that is to be deleted is not known as leaving")
	}
	c.PutNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{v1.LabelTopologyZone: "z"}}})
	if got := c.Snapshot().Node.Zone; got != "z" {
		t.Errorf("zone %q, want z", got)
	}
}

func TestServiceCIDRs(t *testing.T) {
	cidr := func(name string, cidrs ...string) *networking.ServiceCIDR {
		return &networking.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networking.ServiceCIDRSpec{CIDRs: cidrs}}
	}
	c := NewCluster(Settings{})
	before := c.Snapshot()
	c.PutServiceCIDR(cidr("a", "10.96.0.0/12", "fd00:96::/108"))
	c.PutServiceCIDR(cidr("b", "10.0.0.17/24", "fd00:96::/108", "0.0.0.0/0", "nonsense"))
	now := c.Snapshot()
	if got := fmt.Sprint(now.Node.ServiceCIDRs); got != "[10.0.0.0/24 10.96.0.0/12 fd00:96::/108]" || now.Node.Equal(before.Node) {
		t.Errorf("ServiceCIDRs %s", got)
	}
	deleting := cidr("a", "10.96.0.0/12", "fd00:96::/108")
	deleting.DeletionTimestamp = &metav1.Time{}
	c.PutServiceCIDR(deleting)
	if c.Snapshot() != now {
		t.Error("one that is being deleted counts no more")
	}
	c.DeleteServiceCIDR("a")
	c.DeleteServiceCIDR("b")
	if got := c.Snapshot().Node; !got.Equal(before.Node) {
		t.Errorf("ServiceCIDRs %v after their deletion", got.ServiceCIDRs)
	}

	for field, bad := range map[string]*networking.ServiceCIDR{
		"metadata.name": cidr("A b", "10.0.0.0/8"),
		"spec.cidrs":    cidr("a"),
		"spec.cidrs[0]": cidr("a", "10.0.0.0"),
		"spec.cidrs[1]": cidr("a", "10.0.0.0/8", "::/0"),
		"spec.cidrs[2]": cidr("a", "10.0.0.0/8", "fd00::/64", "127.0.0.0/8"),
		"spec.cidrs[3]": cidr("a", "10.0.0.0/8", "fd00::/64", "10.1.0.0/16", "10.96.0.17/12"),
	} {
		if errs := ValidateServiceCIDR(bad); len(errs) != 1 || errs[0].Field != field {
			t.Errorf("errors %v, want one at %s", errs, field)
		}
	}
	if errs := ValidateServiceCIDR(cidr("a", "10.96.0.0/12", "fd00:96::/108")); len(errs) > 0 {
		t.Errorf("a good one is refused: %v", errs)
	}
}

// What the node was before the start decides between the two thresholds, and is asked only
// there.
func TestStartLarge(t *testing.T) {
	for _, test := range []struct {
		endpoints          int
		was, want, isAsked bool
	}{
		{700, true, true, true}, {700, false, false, true},
		{499, true, false, false}, {1001, false, true, false}, // it does not matter what was
	} {
		c := NewCluster(Settings{})
		asked := 0
		c.StartLarge(func() bool { asked++; return test.was })
		c.PutService(NewService(testService(nil)))
		addresses := make([]string, test.endpoints)
		for i := range addresses {
			addresses[i] = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String()
		}
		c.PutSlice(NewSlice(testSlice("a", nil, addresses...)))
		got := c.Snapshot().Node.LargeCluster
		c.PutSlice(NewSlice(testSlice("b", nil, "10.2.0.1")))
		if later := c.Snapshot().Node.LargeCluster; got != test.want || later != got || (asked == 1) != test.isAsked || asked > 1 {
			t.Errorf("%+v: large %v, then %v, asked %d times", test, got, later, asked)
		}
	}
}

func TestValidationNamesTheField(t *testing.T) {
	tests := map[string]func(*v1.Service){
		"metadata.name":                     func(s *v1.Service) { s.Name = "Web\n-A" },
		"metadata.namespace":                func(s *v1.Service) { s.Namespace = `a"b` },
		"spec.clusterIP":                    func(s *v1.Service) { s.Spec.ClusterIP = "10.0.0.256" },
		"spec.clusterIPs[1]":                func(s *v1.Service) { s.Spec.ClusterIPs = []string{"10.0.0.1", "x"} },
		"spec.externalIPs[0]":               func(s *v1.Service) { s.Spec.ExternalIPs = []string{"fe80::1%eth0"} },
		"spec.loadBalancerSourceRanges[0]":  func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0"} },
		"status.loadBalancer.ingress[0].ip": func(s *v1.Service) { s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "-"}} },
		"spec.healthCheckNodePort":          func(s *v1.Service) { s.Spec.HealthCheckNodePort = -1 },
		"spec.type":                         func(s *v1.Service) { s.Spec.Type = "Odd" },
		"spec.externalTrafficPolicy":        func(s *v1.Service) { s.Spec.ExternalTrafficPolicy = "Odd" },
		"spec.internalTrafficPolicy":        func(s *v1.Service) { s.Spec.InternalTrafficPolicy = new(v1.ServiceInternalTrafficPolicy("Odd")) },
		"spec.sessionAffinity":              func(s *v1.Service) { s.Spec.SessionAffinity = "Odd" },
		"spec.ports[0].name":                func(s *v1.Service) { s.Spec.Ports[0].Name = "a b" },
		"spec.ports[0].port":                func(s *v1.Service) { s.Spec.Ports[0].Port = 65536 },
		"spec.ports[0].nodePort":            func(s *v1.Service) { s.Spec.Ports[0].NodePort = -1 },
		"spec.ports[1].port": func(s *v1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "again", Port: 80})
		},
		"spec.externalIPs[1]":    func(s *v1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1", "127.0.0.1"} },
		"spec.ports[0].protocol": func(s *v1.Service) { s.Spec.Ports[0].Protocol = "ICMP" },
		"spec.ports[1].name":     func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, s.Spec.Ports[0]) },
		"spec.sessionAffinityConfig.clientIP.timeoutSeconds": func(s *v1.Service) {
			s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: new(int32(0))}}
		},
	}
	if errs := ValidateService(testService(nil)); len(errs) > 0 {
		t.Fatalf("a good Service is refused: %v", errs)
	}
	for path, change := range tests {
		t.Run(path, func(t *testing.T) {
			errs := ValidateService(testService(change))
			if len(errs) == 0 || errs[0].Field != path {
				t.Errorf("errors %v, want one at %s", errs, path)
			}
		})
	}
}
