package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan/podnet"
)

// The ConfigMap of flannel is edited and the agent started anew, which says by
// which backend packets get to other nodes. TestPodNetworkRepair shows the switch with
// packets.
func TestR204BackendOfTheFile(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "net-conf.json")
	for _, backend := range []podnet.BackendType{podnet.VXLAN, podnet.HostGW} {
		text := `{"Network": "10.244.0.0/16", "EnableNFTables": false, "Backend": {"Type": "` + string(backend) + `"}}`
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		f := podnetFlags{nodeName: "master", netConfig: conf, subnetMgr: true, resyncSeconds: 60, prefix: podnet.DefaultPrefix}
		o, err := f.options(slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil || o.Config.Backend.Type != backend {
			t.Fatalf("%s: %s, %v", backend, o.Config.Backend.Type, err)
		}
		if !strings.Contains(said.String(), "backend="+string(backend)) {
			t.Errorf("the log says %q", said.String())
		}
	}
}
