package config

import "testing"

// Every mode has a name, and there are three now: once there were iptables (the default)
// and ipvs.
func TestR140Modes(t *testing.T) {
	for _, mode := range []Mode{IPTables, IPVS, NFTables} {
		c, _, err := load(t, FileFirst, "--proxy-mode", string(mode))
		if err != nil || c.Mode != mode {
			t.Errorf("--proxy-mode %s: %s, %v", mode, c.Mode, err)
		}
		if c, _, err = load(t, FileFirst, "--config", write(t, head+"mode: "+string(mode)+"\n")); err != nil || c.Mode != mode {
			t.Errorf("mode: %s: %s, %v", mode, c.Mode, err)
		}
	}
	if _, _, err := load(t, FileFirst, "--proxy-mode", "userspace"); err == nil {
		t.Error("a mode that is gone is taken")
	}
}

// Kubeadm's file for a cluster in ipvs mode: its own documents, and the
// proxy's behind them. The scheduler that is asked for.
func TestR188Kubeadm(t *testing.T) {
	c, warnings, err := load(t, FileFirst, "--strict-config", "--hostname-override", "master", "--config", write(t, `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration:
  criSocket: unix:///var/run/cri-dockerd.sock
localAPIEndpoint: {advertiseAddress: 172.22.7.89, bindPort: 6443}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.34.2
networking:
  serviceSubnet: 10.244.0.0/16
proxy: {}
---
`+head+`mode: ipvs
ipvs: {scheduler: wrr}
`))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if c.Mode != IPVS || c.IPVS.Scheduler != "wrr" || c.Hostname != "master" {
		t.Errorf("%+v", c)
	}
}
