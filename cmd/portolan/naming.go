package main

import (
	"context"
	"errors"
	"maps"

	"portolan/source/kube"
	"portolan/source/manifests"
	"portolan/trace"
)

// nameChains returns the Service terms of the chains of all Services in the
// manifests, by chain name. Documents that were refused are an error: a name
// that is missing would mislead.
func nameChains(ctx context.Context, paths []string) (map[string]string, error) {
	snapshot, problems := manifests.New(paths, kube.NewCluster(kube.Settings{})).Load(ctx)
	var errs []error
	for _, p := range problems {
		if !p.Warning {
			errs = append(errs, p)
		}
	}
	out := map[string]string{}
	for svc := range snapshot.All() {
		for _, port := range svc.Ports {
			var endpoints []string
			for _, e := range port.Endpoints {
				endpoints = append(endpoints, e.Addr.String())
			}
			maps.Copy(out, trace.ServiceChains(svc.PortName(port).String(), string(port.Protocol), endpoints))
		}
	}
	return out, errors.Join(errs...)
}
