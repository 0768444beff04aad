package main

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"portolan/service"
	"portolan/source/kube"
	"portolan/source/manifests"
	"portolan/trace"
)

// nameChains returns the Service terms of the chains of all Services in the manifests, by
// chain name, and of their frontends. Documents that were refused are an error: a name
// that is missing would mislead.
func nameChains(ctx context.Context, paths []string) (map[string]string, error) {
	snapshot, problems := manifests.New(paths, kube.NewCluster(kube.Settings{})).Load(ctx)
	var errs []error
	for _, p := range problems {
		if !p.Warning {
			errs = append(errs, p)
		}
	}
	return chainNames(snapshot), errors.Join(errs...)
}

// chainNames returns the Service terms of the chains of all Services.
func chainNames(snapshot *service.Snapshot) map[string]string {
	out := map[string]string{}
	for svc := range snapshot.All() {
		for _, port := range svc.Ports {
			var endpoints []string
			for _, e := range port.Endpoints {
				endpoints = append(endpoints, e.Addr.String())
			}
			name, protocol := svc.PortName(port).String(), string(port.Protocol)
			maps.Copy(out, trace.ServiceChains(name, protocol, endpoints))
			maps.Copy(out, trace.ServiceFrontends(name, protocol, frontends(svc, port), port.NodePort))
		}
	}
	return out
}

// frontends are the addresses at which a port of the Service answers, other
// than NodePorts.
func frontends(svc *service.Service, port service.Port) (out []netip.AddrPort) {
	for _, a := range slices.Concat(svc.ClusterIPs, svc.ExternalIPs, svc.LoadBalancerIPs) {
		out = append(out, netip.AddrPortFrom(a, port.Port))
	}
	return out
}
