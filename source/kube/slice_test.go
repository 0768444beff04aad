package kube

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
)

func TestTriggers(t *testing.T) {
	dated := func(text string) *slice {
		s := &discovery.EndpointSlice{}
		s.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: text}
		return newSlice(s)
	}
	got := triggers([]*slice{dated("2026-01-02T03:04:05.6Z"), {}, dated("soon"), dated("2026-01-01T01:00:00+01:00")})
	if len(got) != 2 || got[0].Format("2006-01-02T15:04:05.9Z") != "2026-01-01T00:00:00Z" || !got[1].After(got[0]) {
		t.Errorf("%v", got)
	}
}
