package config

import (
	"os"
	"path/filepath"
	"slices"
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

func load(t *testing.T, precedence Precedence, args ...string) (Config, []string, error) {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags := AddFlags(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags.Config(precedence)
}

// Flags and a file that say nothing have the same defaults, those of kube-proxy 1.37.
func TestDefaults(t *testing.T) {
	fromFlags, _, err := load(t, FileFirst)
	if err != nil {
		t.Fatal(err)
	}
	fromFile, warnings, err := load(t, FileFirst, "--config", write(t, head))
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
		"hostnameOverride: Node-A\nclusterCIDR: 10.244.0.0/16,fd00::/48\nnodePortAddresses: [localhost, 192.0.2.0/24]\niptables: {minSyncPeriod: 2s}\n")
	c, warnings, err := load(t, FileFirst, "--config", path, "--masquerade-all", "--hostname-override", "Node-B", "--proxy-mode", "nftables", "-v", "2", "--node-ip", "192.0.2.1")
	want := path + ": beside a file these flags do not count, as in kube-proxy: --masquerade-all, --proxy-mode; set their fields in it"
	if err != nil || !slices.Equal(warnings, []string{want}) {
		t.Fatal(err, warnings)
	}
	if c.Hostname != "node-b" || c.MasqueradeAll || len(c.ClusterCIDRs) != 2 || c.MinSyncPeriod != 2*time.Second || len(c.NodePortAddresses) != 3 {
		t.Errorf("kube-proxy's rule: %+v", c)
	}
	c, warnings, err = load(t, FlagsFirst, "--config", path, "--masquerade-all", "--cluster-cidr", "10.0.0.0/8")
	if len(warnings) > 0 {
		t.Errorf("flags that stand above the file: %q", warnings)
	}
	if err != nil || c.Hostname != "node-a" || !c.MasqueradeAll || len(c.ClusterCIDRs) != 1 {
		t.Errorf("flags above the file: %+v, %v", c, err)
	}
}

// Unknown and duplicate fields are warnings with their line in the file, and
// errors when that is asked for.
func TestUnknownAndDuplicateFields(t *testing.T) {
	path := write(t, "# a comment\n---\nkind: InitConfiguration\nnoSuchField: 1\n---\n"+head+
		"clusterCIDR: 10.0.0.0/8\nnoSuchField: 1\niptables:\n  masqueradeBit: 3\n  bit: 4\n  masqueradeBit: 5\n"+
		"winkernel: {networkName: x}\nfeatureGates: {Guess: true}\n---\napiVersion: portolan.io/v1alpha1\nkind: ProxyOptions\nlayout: compact\nmanifests: [/etc/services]\n")
	c, warnings, err := load(t, FileFirst, "--config", path)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"line 9: field noSuchField", "line 12: field iptables.bit", "line 13: field iptables.masqueradeBit is there already, on line 11", "line 19: field layout", "winkernel", "gate Guess"} {
		if i >= len(warnings) || !strings.Contains(warnings[i], want) {
			t.Errorf("%q is not warning %d of %q", want, i, warnings)
		}
	}
	if len(warnings) != 6 || c.MasqueradeBit != 5 || len(c.Options.Manifests) != 1 {
		t.Errorf("%q, %+v", warnings, c)
	}
	if _, _, err := load(t, FileFirst, "--config", path, "--strict-config"); err == nil || !strings.Contains(err.Error(), "line 12") {
		t.Errorf("strict: %v", err)
	}
}

// Our own settings: a document of their own, flags above it, in every use.
func TestOwnOptions(t *testing.T) {
	const options = "apiVersion: portolan.io/v1alpha1\nkind: ProxyOptions\nmanifests: [/a, /b]\nnodeIPs: [192.0.2.1]\n"
	for _, text := range []string{options, head + "---\n" + options, options + "---\n" + head} {
		path := write(t, text)
		c, warnings, err := load(t, FileFirst, "--config", path)
		if err != nil || len(warnings) > 0 || len(c.Options.Manifests) != 2 || len(c.Options.NodeIPs) != 1 {
			t.Errorf("%+v, %v, %v", c.Options, warnings, err)
		}
		c, _, err = load(t, FileFirst, "--config", path, "--manifests", "/c", "--node-ip", "x")
		if err != nil || len(c.Options.Manifests) != 1 || c.Options.NodeIPs[0] != "x" {
			t.Errorf("flags: %+v, %v", c.Options, err)
		}
		if _, err := c.Options.Addrs(); err == nil {
			t.Error("x is an address")
		}
	}
	more := write(t, options+"tcpReset: true\nipvsDrainTimeout: 5m\n")
	for _, c := range []struct {
		args  []string
		reset bool
		drain time.Duration
	}{
		{nil, true, 5 * time.Minute},
		{[]string{"--tcp-reset=false", "--ipvs-drain-timeout", "0"}, false, 0},
		{[]string{"--ipvs-drain-timeout", "90s"}, true, 90 * time.Second},
	} {
		got, _, err := load(t, FileFirst, append([]string{"--config", more}, c.args...)...)
		if err != nil || got.Options.TCPReset != c.reset || got.Options.IPVSDrainTimeout.Duration != c.drain {
			t.Errorf("%q: %+v, %v", c.args, got.Options, err)
		}
	}
	if _, _, err := load(t, FileFirst, "--ipvs-drain-timeout", "-1s"); err == nil || !strings.Contains(err.Error(), "--ipvs-drain-timeout") {
		t.Errorf("a time before now: %v", err)
	}
	c, _, err := load(t, FileFirst, "--ipvs-drain-timeout", "90s")
	text, failed := c.YAML()
	if err != nil || failed != nil || !strings.HasSuffix(string(text), "ipvsDrainTimeout: 1m30s\nkind: ProxyOptions\n") {
		t.Errorf("written: %v, %v\n%s", err, failed, text)
	}
	if _, _, err := load(t, FileFirst, "--config", write(t, strings.Replace(options, "v1alpha1", "v1", 1))); err == nil {
		t.Error("an unknown version is taken")
	}
}

// The host's choice of a mode brings that mode's section.
func TestWithMode(t *testing.T) {
	path := write(t, head+"nftables: {syncPeriod: 9s, masqueradeAll: true}\niptables: {syncPeriod: 8s}\n")
	auto, _, err := load(t, FileFirst, "--config", path, "--master", "https://x", "--manifests", "/a")
	if err != nil {
		t.Fatal(err)
	}
	c, err := auto.WithMode(NFTables)
	if err != nil || c.Mode != NFTables || c.SyncPeriod != 9*time.Second || c.MinSyncPeriod != 10*time.Millisecond || !c.MasqueradeAll || c.Client.Master == "" || len(c.Options.Manifests) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if auto.Mode != Auto || auto.SyncPeriod != 8*time.Second || auto.MasqueradeAll {
		t.Errorf("auto changed: %+v", auto)
	}
}

// config.conf of kubeadm's ConfigMap kube-proxy, as it is in its clusters.
func TestKubeadm(t *testing.T) {
	c, warnings, err := load(t, FileFirst, "--strict-config", "--hostname-override", "node-1", "--config", "testdata/kubeadm.yaml")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if c.Hostname != "node-1" || c.Client.Kubeconfig == "" || c.Client.Burst != 10 || c.OOMScoreAdj != -999 || c.Conntrack.MaxPerCore != 32768 || c.SyncPeriod != 30*time.Second {
		t.Errorf("%+v", c)
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
		if _, _, err := load(t, FileFirst, "--config", write(t, text)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, _, err := load(t, FileFirst, "--config", "does-not-exist"); err == nil {
		t.Error("a missing file was taken")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "clusterCIDR: 10.0.0.0/8\nnodePortAddresses: [primary]\n"))
	f.Add([]byte("a: 1\n---\n" + head))
	for _, text := range inputs {
		f.Add([]byte(head + text))
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		if f, err := parse(data); err == nil {
			if c, err := New(f.proxy); err == nil {
				_, _ = c.YAML()
			}
		}
	})
}

// TestNFTables: that mode has a section of its own, and the flags that are not
// about iptables reach it.
// TestUnfitFields: each value that its field does not take is named, with its line.
func TestUnfitFields(t *testing.T) {
	path := write(t, `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: 3
iptables:
  masqueradeBit: "x"
  syncPeriod: foo
  minSyncPeriod: "30"
conntrack: {maxPerCore: 99999999999, min: 7}
nodePortAddresses: primary
featureGates: {A: true, B: [no]}
clientConnection: {qps: 1.5, burst: 1.5}
enableProfiling: yes
`)
	_, _, err := load(t, FileFirst, "--config", path)
	const want = "line 3: KubeProxyConfiguration.mode: 3 is not text in quotes" +
		"; line 5: KubeProxyConfiguration.iptables.masqueradeBit: \"x\" is not a whole number of 32 bits" +
		"; line 6: KubeProxyConfiguration.iptables.syncPeriod: foo is not a duration, as text such as 30s or 1h" +
		"; line 7: KubeProxyConfiguration.iptables.minSyncPeriod: \"30\" is not a duration, as text such as 30s or 1h" +
		"; line 8: KubeProxyConfiguration.conntrack.maxPerCore: 99999999999 is not a whole number of 32 bits" +
		"; line 9: KubeProxyConfiguration.nodePortAddresses: primary is not a list" +
		"; line 10: KubeProxyConfiguration.featureGates.B: a list is not true or false" +
		"; line 11: KubeProxyConfiguration.clientConnection.burst: 1.5 is not a whole number of 32 bits"
	if err == nil || err.Error() != "config: "+path+": "+want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func TestNFTables(t *testing.T) {
	c, _, err := load(t, FileFirst, "--proxy-mode", "nftables")
	if err != nil {
		t.Fatal(err)
	}
	if c.Mode != NFTables || c.MinSyncPeriod != 10*time.Millisecond || c.MasqueradeBit != 14 || c.LocalhostNodePorts {
		t.Errorf("defaults: %+v", c)
	}
	c, _, err = load(t, FileFirst, "--proxy-mode", "nftables", "--masquerade-all", "--iptables-min-sync-period", "2s", "--iptables-masquerade-bit", "3")
	if err != nil || !c.MasqueradeAll || c.MinSyncPeriod != 2*time.Second || c.MasqueradeBit != 14 {
		t.Errorf("flags: %+v, %v", c, err)
	}
	path := write(t, head+"mode: nftables\niptables: {masqueradeAll: true}\nnftables: {masqueradeBit: 20, syncPeriod: 9s, minSyncPeriod: 0s}\n")
	c, _, err = load(t, FileFirst, "--config", path)
	if err != nil || c.MasqueradeAll || c.MasqueradeBit != 20 || c.SyncPeriod != 9*time.Second || c.MinSyncPeriod != 10*time.Millisecond {
		t.Errorf("file: %+v, %v", c, err)
	}
	_, _, err = load(t, FileFirst, "--config", write(t, head+"mode: nftables\nnftables: {masqueradeBit: 32, syncPeriod: 1ms, minSyncPeriod: 2ms}\n"))
	for _, field := range []string{"nftables.masqueradeBit", "nftables.minSyncPeriod"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}

// TestFileThatIsNone: what was given instead is named, with what to do.
func TestFileThatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: v1\nkind: ConfigMap\ndata:\n  config.conf: |\n    " + strings.ReplaceAll(head, "\n", "\n    "): "it is a ConfigMap, not the KubeProxyConfiguration in it",
		"apiVersion: v1\nkind: Service\n": "no document of apiVersion " + apiVersion,
		"":                                "no document of apiVersion " + apiVersion,
		"#" + strings.Repeat(" ", mostOfFile) + "\n" + head: "more than the 16777216 bytes that are read",
	} {
		if _, _, err := load(t, FileFirst, "--config", write(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
