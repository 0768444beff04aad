package manifests

import (
	"context"
	"slices"
	"testing"

	"portolan/service"
	"portolan/source/kube"
)

// TestWorkingFolder: the watcher says "./" before names there.
func TestWorkingFolder(t *testing.T) {
	for path, name := range map[string]string{"a.yaml": "./a.yaml", "./a.yaml": "./a.yaml", "services": "./services", ".": "./a.yaml"} {
		if !New([]string{path}, kube.NewCluster(kube.Settings{})).concerns(name) {
			t.Errorf("--manifests %s does not follow %s", path, name)
		}
	}
	if New([]string{"a.yaml"}, kube.NewCluster(kube.Settings{})).concerns("./b.yaml") {
		t.Error("--manifests a.yaml follows ./b.yaml")
	}
}

// TestStartWithNothingReadable: what cannot be read at the start may be in force on the
// node, so an empty Snapshot is not told for it; what else can be read is.
func TestStartWithNothingReadable(t *testing.T) {
	cut := "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Serv"
	for name, c := range map[string]struct {
		files map[string]string
		told  []int // numbers of Services; -1 is only problems
	}{
		"a file that was cut off": {map[string]string{"a.yaml": cut}, []int{-1, 1}},
		"beside one that was not": {map[string]string{"a.yaml": cut, "b.yaml": svcYAML("two", "10.96.0.2")}, []int{1, 2}},
		"a Service that is wrong": {map[string]string{"a.yaml": svcYAML("one", "10.96.0.999")}, []int{0, 1}},
		"an empty folder":         {nil, []int{0, 1}},
	} {
		s := newState(t)
		for file, text := range c.files {
			s.write(file, text)
		}
		var told []int
		ctx, stop := context.WithCancel(t.Context())
		settings := make(chan func(*kube.Settings), 1)
		_ = s.source.Watch(ctx, settings, func(snapshot *service.Snapshot, _ []Problem) {
			n := -1
			if snapshot != nil {
				n = snapshot.Len()
			}
			if told = append(told, n); len(told) == len(c.told) {
				stop()
				return
			}
			s.write("a.yaml", svcYAML("one", "10.96.0.1"))
			settings <- func(*kube.Settings) {} // has the files looked at
		})
		stop()
		if !slices.Equal(told, c.told) {
			t.Errorf("%s: told of %v Services, want %v", name, told, c.told)
		}
	}
}
