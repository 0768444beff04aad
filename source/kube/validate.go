package kube

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan/service"
)

// ValidateService checks what the proxy reads of a Service that no API server
// has checked. Every error names its field.
func ValidateService(svc *v1.Service) field.ErrorList {
	errs := validateMeta(&svc.ObjectMeta, validation.IsDNS1123Label)
	spec := field.NewPath("spec")
	if Ignored(svc) != "" {
		return errs
	}
	if svc.Spec.ClusterIP != "" {
		errs = append(errs, validateAddress(spec.Child("clusterIP"), svc.Spec.ClusterIP)...)
	}
	for i, s := range svc.Spec.ClusterIPs {
		errs = append(errs, validateAddress(spec.Child("clusterIPs").Index(i), s)...)
	}
	for i, s := range svc.Spec.ExternalIPs {
		errs = append(errs, validateAddress(spec.Child("externalIPs").Index(i), s)...)
	}
	for i, s := range svc.Spec.LoadBalancerSourceRanges {
		if _, err := parsePrefix(s); err != nil {
			errs = append(errs, field.Invalid(spec.Child("loadBalancerSourceRanges").Index(i), s, err.Error()))
		}
	}
	for i, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			errs = append(errs, validateAddress(field.NewPath("status", "loadBalancer", "ingress").Index(i).Child("ip"), in.IP)...)
		}
	}
	if hc := svc.Spec.HealthCheckNodePort; hc < 0 || hc > 65535 {
		errs = append(errs, field.Invalid(spec.Child("healthCheckNodePort"), hc, "must be 0 to 65535"))
	}
	errs = append(errs, validateEnums(spec, svc)...)
	errs = append(errs, validateAffinity(spec, svc)...)
	return append(errs, validatePorts(spec.Child("ports"), svc.Spec.Ports)...)
}

// validateEnums checks the fields that take one of a few words.
func validateEnums(spec *field.Path, svc *v1.Service) (errs field.ErrorList) {
	switch svc.Spec.Type {
	case "", v1.ServiceTypeClusterIP, v1.ServiceTypeNodePort, v1.ServiceTypeLoadBalancer, v1.ServiceTypeExternalName:
	default:
		errs = append(errs, field.NotSupported(spec.Child("type"), svc.Spec.Type,
			[]v1.ServiceType{v1.ServiceTypeClusterIP, v1.ServiceTypeNodePort, v1.ServiceTypeLoadBalancer, v1.ServiceTypeExternalName}))
	}
	switch svc.Spec.ExternalTrafficPolicy {
	case "", v1.ServiceExternalTrafficPolicyCluster, v1.ServiceExternalTrafficPolicyLocal:
	default:
		errs = append(errs, field.NotSupported(spec.Child("externalTrafficPolicy"), svc.Spec.ExternalTrafficPolicy,
			[]v1.ServiceExternalTrafficPolicy{v1.ServiceExternalTrafficPolicyCluster, v1.ServiceExternalTrafficPolicyLocal}))
	}
	if p := svc.Spec.InternalTrafficPolicy; p != nil && *p != v1.ServiceInternalTrafficPolicyCluster && *p != v1.ServiceInternalTrafficPolicyLocal {
		errs = append(errs, field.NotSupported(spec.Child("internalTrafficPolicy"), *p,
			[]v1.ServiceInternalTrafficPolicy{v1.ServiceInternalTrafficPolicyCluster, v1.ServiceInternalTrafficPolicyLocal}))
	}
	switch svc.Spec.SessionAffinity {
	case "", v1.ServiceAffinityNone, v1.ServiceAffinityClientIP:
	default:
		errs = append(errs, field.NotSupported(spec.Child("sessionAffinity"), svc.Spec.SessionAffinity,
			[]v1.ServiceAffinity{v1.ServiceAffinityNone, v1.ServiceAffinityClientIP}))
	}
	return errs
}

// maxAffinitySeconds is the longest timeoutSeconds that an API server takes: a day.
const maxAffinitySeconds = 86400

func validateAffinity(spec *field.Path, svc *v1.Service) field.ErrorList {
	c := svc.Spec.SessionAffinityConfig
	if svc.Spec.SessionAffinity != v1.ServiceAffinityClientIP || c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return nil
	}
	if t := *c.ClientIP.TimeoutSeconds; t <= 0 || t > maxAffinitySeconds {
		return field.ErrorList{field.Invalid(spec.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), t,
			fmt.Sprintf("must be 1 to %d", maxAffinitySeconds))}
	}
	return nil
}

// validatePorts holds ports against the rules of the API server: names and numbers that
// stand once.
func validatePorts(path *field.Path, ports []v1.ServicePort) (errs field.ErrorList) {
	type identity struct {
		name     string
		protocol v1.Protocol
	}
	type portNumber struct {
		port     int32
		protocol service.Protocol
	}
	seen, numbers := map[identity]bool{}, map[portNumber]bool{}
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != "" {
			for _, msg := range validation.IsDNS1123Label(p.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), p.Name, msg))
			}
		} else if len(ports) > 1 {
			errs = append(errs, field.Required(at.Child("name"), "a Service with several ports names each of them"))
		}
		errs = append(errs, validateProtocol(at.Child("protocol"), p.Protocol)...)
		for _, msg := range validation.IsValidPortNum(int(p.Port)) {
			errs = append(errs, field.Invalid(at.Child("port"), p.Port, msg))
		}
		if p.NodePort < 0 || p.NodePort > 65535 {
			errs = append(errs, field.Invalid(at.Child("nodePort"), p.NodePort, "must be 0 to 65535"))
		}
		id := identity{p.Name, p.Protocol}
		if seen[id] {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		number := portNumber{p.Port, protocol(&p.Protocol)}
		if numbers[number] {
			errs = append(errs, field.Duplicate(at.Child("port"), fmt.Sprintf("%s/%d", number.protocol, p.Port)))
		}
		seen[id], numbers[number] = true, true
	}
	return errs
}

func validateProtocol(path *field.Path, p v1.Protocol) field.ErrorList {
	switch p {
	case "", v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP:
		return nil
	}
	return field.ErrorList{field.NotSupported(path, p, []v1.Protocol{v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP})}
}

// ValidateSlice checks what the proxy reads of an EndpointSlice.
func ValidateSlice(slice *discovery.EndpointSlice) field.ErrorList {
	errs := validateMeta(&slice.ObjectMeta, validation.IsDNS1123Subdomain)
	if slice.Labels[discovery.LabelServiceName] == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "labels").Key(discovery.LabelServiceName), "names the Service of the slice"))
	}
	switch slice.AddressType {
	case discovery.AddressTypeFQDN:
		return errs
	case discovery.AddressTypeIPv4, discovery.AddressTypeIPv6:
	default:
		errs = append(errs, field.NotSupported(field.NewPath("addressType"), slice.AddressType,
			[]discovery.AddressType{discovery.AddressTypeIPv4, discovery.AddressTypeIPv6, discovery.AddressTypeFQDN}))
	}
	for i, p := range slice.Ports {
		at := field.NewPath("ports").Index(i)
		if p.Port != nil && (*p.Port < 0 || *p.Port > 65535) {
			errs = append(errs, field.Invalid(at.Child("port"), *p.Port, "must be 0 to 65535"))
		}
		if p.Protocol != nil {
			errs = append(errs, validateProtocol(at.Child("protocol"), *p.Protocol)...)
		}
	}
	for i := range slice.Endpoints {
		errs = append(errs, validateEndpoint(field.NewPath("endpoints").Index(i), slice.AddressType, &slice.Endpoints[i])...)
	}
	return errs
}

// validateEndpoint refuses addresses of the other family, and those that no pod can have.
func validateEndpoint(path *field.Path, want discovery.AddressType, e *discovery.Endpoint) (errs field.ErrorList) {
	for j, s := range e.Addresses {
		at := path.Child("addresses").Index(j)
		addr, err := parseAddr(s)
		if err != nil {
			errs = append(errs, field.Invalid(at, s, err.Error()))
		} else if why := special(addr); why != "" {
			errs = append(errs, field.Invalid(at, s, why))
		} else if addr.Is4() != (want == discovery.AddressTypeIPv4) {
			errs = append(errs, field.Invalid(at, s, "is not of addressType "+string(want)))
		}
	}
	return errs
}

// ValidateNode checks what the proxy reads of a Node.
func ValidateNode(node *v1.Node) (errs field.ErrorList) {
	for _, msg := range validation.IsDNS1123Subdomain(node.Name) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), node.Name, msg))
	}
	for i, s := range node.Spec.PodCIDRs {
		if _, err := parsePrefix(s); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", "podCIDRs").Index(i), s, err.Error()))
		}
	}
	for i, a := range node.Status.Addresses {
		if a.Type != v1.NodeInternalIP && a.Type != v1.NodeExternalIP {
			continue
		}
		errs = append(errs, validateAddress(field.NewPath("status", "addresses").Index(i).Child("address"), a.Address)...)
	}
	return errs
}

// ValidateServiceCIDR checks what the proxy reads of a ServiceCIDR. A network of
// all addresses would have everything dropped.
func ValidateServiceCIDR(o *networking.ServiceCIDR) (errs field.ErrorList) {
	for _, msg := range validation.IsDNS1123Subdomain(o.Name) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), o.Name, msg))
	}
	path := field.NewPath("spec", "cidrs")
	if len(o.Spec.CIDRs) == 0 {
		errs = append(errs, field.Required(path, "names one network, or one of each IP family"))
	}
	for i, s := range o.Spec.CIDRs {
		p, err := parsePrefix(s)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(path.Index(i), s, err.Error()))
		case p.Bits() == 0:
			errs = append(errs, field.Invalid(path.Index(i), s, "must not be all addresses"))
		case hostBits(s):
			errs = append(errs, field.Invalid(path.Index(i), s, fmt.Sprintf("must not have bits set beyond the prefix length; the network is %s", p)))
		case special(p.Addr()) != "":
			errs = append(errs, field.Invalid(path.Index(i), s, special(p.Addr())))
		}
	}
	return errs
}

func validateMeta(meta *metav1.ObjectMeta, nameRule func(string) []string) (errs field.ErrorList) {
	path := field.NewPath("metadata")
	for _, msg := range nameRule(meta.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), meta.Name, msg))
	}
	for _, msg := range validation.IsDNS1123Label(meta.Namespace) {
		errs = append(errs, field.Invalid(path.Child("namespace"), meta.Namespace, msg))
	}
	return errs
}

func validateAddress(path *field.Path, s string) field.ErrorList {
	addr, err := parseAddr(s)
	if err != nil {
		return field.ErrorList{field.Invalid(path, s, err.Error())}
	}
	if why := special(addr); why != "" {
		return field.ErrorList{field.Invalid(path, s, why)}
	}
	return nil
}

// special tells why an address can be no Service's and no endpoint's, as an API
// server sees it; a Service on 127.0.0.1 would take over the node's own.
func special(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "must not be the unspecified address"
	case a.IsLoopback():
		return "must not be a loopback address"
	case a.IsLinkLocalUnicast():
		return "must not be a link-local address"
	case a.IsMulticast():
		return "must not be a multicast address"
	}
	return ""
}
