package main

import (
	"strings"
	"testing"
	"time"

	"portolan/source/apiserver"
)

// An API server that is away is told after a while, with the oldest trouble; a watch
// that ends and begins anew is not.
func TestContactCondition(t *testing.T) {
	now := time.Unix(10_000, 0)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	fine := apiserver.Contact{Resource: "services", Heard: ago(5)}
	for name, tt := range map[string]struct {
		contacts            []apiserver.Contact
		status, text        string
		since, lastHeardAgo int
	}{
		"all is heard":       {[]apiserver.Contact{fine, {Resource: "nodes", Heard: ago(60)}}, "True", "every change", 0, 60},
		"a watch begins":     {[]apiserver.Contact{fine, {Resource: "nodes", Heard: ago(60), Failing: ago(3), Err: "refused"}}, "True", "every change", 0, 60},
		"one is not allowed": {[]apiserver.Contact{fine, {Resource: "nodes", Heard: ago(100), Failing: ago(90), Err: "forbidden"}}, "False", "nodes stays in force, and may be old: forbidden", 90, 100},
		"the longest counts": {[]apiserver.Contact{{Resource: "services", Heard: ago(80), Failing: ago(70), Err: "refused"}, {Resource: "nodes", Heard: ago(100), Failing: ago(90), Err: "refused"}},
			"False", "nodes", 90, 100},
		"silence": {[]apiserver.Contact{fine, {Resource: "endpointslices", Heard: ago(1000)}}, "False", "nothing was heard", 1000, 1000},
		"never":   {[]apiserver.Contact{fine, {Resource: "endpointslices", Failing: ago(40), Err: "refused"}}, "False", "refused", 40, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := contactCondition(tt.contacts, now)[0]
			if got.Status != tt.status || !strings.Contains(got.Message, tt.text) {
				t.Errorf("%s %q", got.Status, got.Message)
			}
			if tt.since > 0 && (got.Since == nil || !got.Since.Equal(ago(tt.since))) || tt.since == 0 && got.Since != nil {
				t.Errorf("since %v", got.Since)
			}
			if tt.lastHeardAgo > 0 && (got.LastSuccess == nil || !got.LastSuccess.Equal(ago(tt.lastHeardAgo))) || tt.lastHeardAgo == 0 && got.LastSuccess != nil {
				t.Errorf("last heard %v", got.LastSuccess)
			}
		})
	}
	if got := contactCondition(nil, now); got != nil {
		t.Errorf("without an API server: %v", got)
	}
}
