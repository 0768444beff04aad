package kube

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
)

// triggers returns when the slices last changed, as the cluster's controller says
// in an annotation. Slices without it, or with something that is no time, are left
// out.
func triggers(endpointSlices []*discovery.EndpointSlice) []time.Time {
	var out []time.Time
	for _, s := range endpointSlices {
		text, given := s.Annotations[v1.EndpointsLastChangeTriggerTime]
		if !given {
			continue
		}
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
			out = append(out, t.UTC())
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}
