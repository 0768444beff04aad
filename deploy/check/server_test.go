package check

import (
	"flag"
	"os"
	"testing"

	"portolan/e2e/controlplane"
)

var askServer = flag.Bool("server", false, "start a real API server and ask it to take every object")

// A real API server takes what the base and the chart say, field by field. A
// PodMonitor is left out: its type is the Prometheus operator's.
func TestServerTakesEverything(t *testing.T) {
	if !*askServer {
		t.Skip("a real API server is asked by make e2e (-args -server)")
	}
	programs, err := controlplane.Build(t.Context(), os.Stderr, "etcd", "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	// As in most clusters; the container that sets sysctls is privileged.
	options := controlplane.Options{Programs: programs, Args: []string{"--allow-privileged=true"}}
	server, err := controlplane.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	// The server makes the namespace by itself, soon.
	if err := server.Apply(t.Context(), "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: first, namespace: kube-system}"); err != nil {
		t.Fatal(err)
	}
	all := map[string]objects{"base": kustomized(t, "../base"), "sysctls": kustomized(t, "../sysctls"), "podnet": kustomized(t, "../podnet"), "chart": chart(t, "")}
	for _, c := range chartValues {
		all["chart with "+c.name] = chart(t, c.values)
	}
	taken := 0
	for name, objects := range all {
		for kind, o := range objects {
			if kind == "PodMonitor" {
				continue
			}
			if err := server.Create(t.Context(), o, true); err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
			taken++
		}
	}
	t.Logf("%d objects in %d shapes are taken", taken, len(all))

	// It looks at fields at all.
	wrong := chart(t, "")["DaemonSet"]
	wrong["spec"].(map[string]any)["surprise"] = true
	if err := server.Create(t.Context(), wrong, true); err == nil {
		t.Error("an unknown field is taken too: the dry run proves nothing")
	}
}
