package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

func load(t *testing.T, flagsBeatFile bool, args ...string) (Config, []string, error) {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags := AddFlags(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags.Config(flagsBeatFile)
}

func TestDefaults(t *testing.T) {
	fromFlags, _, err := load(t, false)
	if err != nil {
		t.Fatal(err)
	}
	fromFile, warnings, err := load(t, false, "--config", write(t, head))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	for name, c := range map[string]Config{"flags": fromFlags, "file": fromFile} {
		if c.Mode != Auto || c.MasqueradeBit != 14 || !c.LocalhostNodePorts || c.SyncPeriod != 30*time.Second ||
			c.DetectLocalMode != DetectClusterCIDR || c.HealthzBindAddress != "0.0.0.0:10256" {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestFileAndFlags(t *testing.T) {
	path := write(t, "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n---\n"+head+
		"hostnameOverride: ' Node-A '\nclusterCIDR: 10.244.0.0/16,fd00::/48\nnodePortAddresses: [localhost, 192.0.2.0/24]\niptables: {minSyncPeriod: 2s}\n")
	c, warnings, err := load(t, false, "--config", path, "--masquerade-all", "--hostname-override", "Node-B")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if c.Hostname != "node-b" || c.MasqueradeAll || len(c.ClusterCIDRs) != 2 || c.MinSyncPeriod != 2*time.Second || len(c.NodePortAddresses) != 3 {
		t.Errorf("kube-proxy's rule: %+v", c)
	}
	c, _, err = load(t, true, "--config", path, "--masquerade-all", "--cluster-cidr", "10.0.0.0/8")
	if err != nil || c.Hostname != "node-a" || !c.MasqueradeAll || len(c.ClusterCIDRs) != 1 {
		t.Errorf("flags above the file: %+v, %v", c, err)
	}
}

func TestUnknownAndDuplicateFieldsAreWarnings(t *testing.T) {
	_, warnings, err := load(t, false, "--config", write(t, head+"clusterCIDR: 10.0.0.0/8\nnoSuchField: 1\n"))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "noSuchField") {
		t.Errorf("warnings %v, error %v", warnings, err)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"empty":           "",
		"another kind":    "apiVersion: v1\nkind: Service\n",
		"unknown version": "apiVersion: kubeproxy.config.k8s.io/v9\nkind: KubeProxyConfiguration\n",
		"wrong type":      head + "nodePortAddresses: all\n",
		"no YAML":         head + "{{{",
	} {
		if _, _, err := load(t, false, "--config", write(t, text)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, _, err := load(t, false, "--config", "does-not-exist"); err == nil {
		t.Error("a missing file was taken")
	}
}

// Every rule refuses one bad value and names the field.
func TestD4Validation(t *testing.T) {
	for field, text := range map[string]string{
		"mode":                            "mode: userspace",
		"hostnameOverride":                "hostnameOverride: 'a b'",
		"iptables.masqueradeBit":          "iptables: {masqueradeBit: 32}",
		"iptables.minSyncPeriod":          "iptables: {minSyncPeriod: -1s}",
		"iptables.syncPeriod":             "iptables: {syncPeriod: 1s, minSyncPeriod: 2s}",
		"healthzBindAddress":              "healthzBindAddress: 'localhost:1'",
		"clusterCIDR":                     "clusterCIDR: '10.0.0.0/8,10.1.0.0/16'",
		"detectLocalMode":                 "detectLocalMode: Guess",
		"detectLocal.bridgeInterface":     "detectLocalMode: BridgeInterface",
		"detectLocal.interfaceNamePrefix": "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: 'a b'}",
		"nodePortAddresses[1]":            "nodePortAddresses: [primary, primary]",
		"nodePortAddresses[0]":            "nodePortAddresses: [Primary]",
	} {
		_, _, err := load(t, false, "--config", write(t, head+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), "KubeProxyConfiguration."+field+":") {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, _, err := load(t, false, "--config", write(t, head+"mode: x\ndetectLocalMode: y\n"))
	if err == nil || strings.Count(err.Error(), "KubeProxyConfiguration.") != 2 {
		t.Errorf("not all failures are reported together: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "clusterCIDR: 10.0.0.0/8\nnodePortAddresses: [primary]\n"))
	f.Add([]byte("a: 1\n---\n" + head))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if c, _, err := parse(data); err == nil {
			_, _ = New(c)
		}
	})
}

// TestNFTables: that mode has a section of its own, and the flags that are not
// about iptables reach it.
func TestNFTables(t *testing.T) {
	c, _, err := load(t, false, "--proxy-mode", "nftables")
	if err != nil {
		t.Fatal(err)
	}
	if c.Mode != NFTables || c.MinSyncPeriod != 10*time.Millisecond || c.MasqueradeBit != 14 || c.LocalhostNodePorts {
		t.Errorf("defaults: %+v", c)
	}
	c, _, err = load(t, false, "--proxy-mode", "nftables", "--masquerade-all", "--iptables-min-sync-period", "2s", "--iptables-masquerade-bit", "3")
	if err != nil || !c.MasqueradeAll || c.MinSyncPeriod != 2*time.Second || c.MasqueradeBit != 14 {
		t.Errorf("flags: %+v, %v", c, err)
	}
	path := write(t, head+"mode: nftables\niptables: {masqueradeAll: true}\nnftables: {masqueradeBit: 20, syncPeriod: 9s, minSyncPeriod: 0s}\n")
	c, _, err = load(t, false, "--config", path)
	if err != nil || c.MasqueradeAll || c.MasqueradeBit != 20 || c.SyncPeriod != 9*time.Second || c.MinSyncPeriod != 10*time.Millisecond {
		t.Errorf("file: %+v, %v", c, err)
	}
	_, _, err = load(t, false, "--config", write(t, head+"mode: nftables\nnftables: {masqueradeBit: 32, syncPeriod: 1ms}\n"))
	for _, field := range []string{"nftables.masqueradeBit", "nftables.syncPeriod"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}
