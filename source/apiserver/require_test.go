package apiserver

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"portolan/backend/iptables"
	"portolan/dataplane"
	"portolan/service"
	"portolan/source/kube"
)

// Services, their endpoints and the Node are watched, and the rules follow at
// once, so that cluster IP and NodePort reach the pods that are there. With packets
// TestFollow of e2e/apiserver shows it.
func TestR139RulesFollowTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := source(kube.DetectClusterCIDR, &logText{})
		told := run(t, s, nil)
		web := svc("web", "1", "10.96.0.1")
		web.Spec.Type, web.Spec.Ports[0].NodePort = v1.ServiceTypeNodePort, 30080
		must(t, s.node.Replace([]any{node("1", nil)}, "1"), s.services.Replace([]any{web}, "1"),
			s.slices.Replace([]any{slice("web-1", "1", "web", "10.244.1.1", "10.244.2.1")}, "1"), s.cidrs.Replace(nil, "1"))
		follows := func(what string, want ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			told.mu.Lock()
			defer told.mu.Unlock()
			if got := translations(t, told.last); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		follows("the first list", "--dport 30080", "--to-destination 10.244.1.1:8080", "--to-destination 10.244.2.1:8080", "-d 10.96.0.1")
		must(t, s.slices.Update(slice("web-1", "2", "web", "10.244.1.9")))
		follows("another endpoint", "--dport 30080", "--to-destination 10.244.1.9:8080", "-d 10.96.0.1")
		moved := web.DeepCopy()
		moved.ResourceVersion, moved.Spec.Ports[0].NodePort = "2", 30081
		must(t, s.services.Update(moved))
		follows("another NodePort", "--dport 30081", "--to-destination 10.244.1.9:8080", "-d 10.96.0.1")
		must(t, s.services.Delete(moved))
		follows("the Service went")
	})
}

// translations lists what the rules for a Snapshot match and translate to.
func translations(t *testing.T, s *service.Snapshot) (out []string) {
	t.Helper()
	b := iptables.New(iptables.Options{Family: service.IPv4, MasqueradeBit: 14})
	sync := dataplane.NewSync(&dataplane.Fake{})
	for _, svc := range slices.Collect(s.All()) {
		objects, err := b.Render(s.Node, svc)
		if err != nil {
			t.Fatal(err)
		}
		sync.Set(dataplane.Owner{Name: svc.Name.String()}, objects)
	}
	text := iptables.PlanText(sync.Plan())
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		for i, w := range words[:max(len(words)-1, 0)] {
			cluster := w == "-d" && strings.HasPrefix(words[i+1], "10.96.")
			if w == "--to-destination" || w == "--dport" && strings.HasPrefix(words[i+1], "3") || cluster && slices.Contains(words, "KUBE-SERVICES") {
				out = append(out, w+" "+strings.TrimSuffix(words[i+1], "/32"))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
