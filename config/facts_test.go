package config

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// facts are what kube-proxy 1.37.2 was seen to do.
const facts = "../testdata/kube-proxy-1.37.2"

// inputs are the files that kube-proxy was given, by the name that the facts
// give them. A text that begins with "=" is the whole file; others stand behind
// apiVersion and kind.
var inputs = map[string]string{
	"empty file":                         "=",
	"no apiVersion":                      "=kind: KubeProxyConfiguration\n",
	"wrong apiVersion":                   "=apiVersion: kubeproxy.config.k8s.io/v1beta1\nkind: KubeProxyConfiguration\n",
	"wrong kind":                         "=apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeletConfiguration\n",
	"not yaml":                           "={{{",
	"json file":                          `={"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration","mode":"iptables"}`,
	"two docs":                           "mode: iptables\n---\n" + head + "mode: bogus\n",
	"unknown top field":                  "bogusField: 1",
	"unknown nested field":               "iptables: {bogusField: 1}",
	"duplicate key":                      "mode: nftables\nmode: iptables",
	"wrong case field":                   "Mode: bogus",
	"unknown + bad value":                "bogusField: 1\nmode: bogus",
	"wrong type string for int":          `oomScoreAdj: "5"`,
	"wrong type int for string":          "mode: 5",
	"wrong type list for string":         "clusterCIDR: [10.0.0.0/8]",
	"wrong type string for bool":         `bindAddressHardFail: "true"`,
	"bad duration":                       "configSyncPeriod: 5",
	"bad duration str":                   "configSyncPeriod: 5 parsecs",
	"null mode":                          "mode: null",
	"string nodePortAddresses":           "nodePortAddresses: 10.0.0.0/8",
	"unknown + wrong type":               "bogusField: 1\noomScoreAdj: \"5\"",
	"mode bogus":                         "mode: bogus",
	"mode userspace":                     "mode: userspace",
	"mode kernelspace":                   "mode: kernelspace",
	"mode IPTABLES":                      "mode: IPTABLES",
	"detectLocalMode bogus":              "detectLocalMode: bogus",
	"detectLocalMode bridge no iface":    "detectLocalMode: BridgeInterface",
	"detectLocalMode prefix none":        "detectLocalMode: InterfaceNamePrefix",
	"bridge long":                        "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: a-name-that-is-too-long}",
	"clusterCIDR bad":                    "clusterCIDR: bogus",
	"clusterCIDR no mask":                "clusterCIDR: 10.0.0.0",
	"clusterCIDR 2 v4":                   "clusterCIDR: 10.0.0.0/8,11.0.0.0/8",
	"clusterCIDR 3":                      "clusterCIDR: 10.0.0.0/8,fd00::/48,fd01::/48",
	"clusterCIDR dual":                   "clusterCIDR: 10.0.0.0/8,fd00::/48",
	"clusterCIDR space":                  "clusterCIDR: 10.0.0.0/8, fd00::/48",
	"clusterCIDR bad in NodeCIDR mode":   "clusterCIDR: bogus\ndetectLocalMode: NodeCIDR",
	"clusterCIDR host bits":              "clusterCIDR: 10.0.0.1/8",
	"clusterCIDR leading zero":           "clusterCIDR: 010.0.0.0/8",
	"clusterCIDR trailing comma":         `clusterCIDR: "10.0.0.0/8,"`,
	"configSyncPeriod 0":                 "configSyncPeriod: 0s",
	"configSyncPeriod neg":               "configSyncPeriod: -1s",
	"iptables.syncPeriod neg":            "iptables: {syncPeriod: -1s}",
	"iptables.syncPeriod 0":              "iptables: {syncPeriod: 0s}",
	"iptables.minSyncPeriod neg":         "iptables: {minSyncPeriod: -1s}",
	"iptables.minSyncPeriod 0":           "iptables: {minSyncPeriod: 0s}",
	"min>sync":                           "iptables: {minSyncPeriod: 20s, syncPeriod: 10s}",
	"nft min>sync":                       "mode: nftables\nnftables: {minSyncPeriod: 20s, syncPeriod: 10s}",
	"nft neg sync":                       "mode: nftables\nnftables: {syncPeriod: -1s}",
	"nft neg sync while iptables mode":   "mode: iptables\nnftables: {syncPeriod: -1s}",
	"ipvs min>sync":                      "mode: ipvs\nipvs: {minSyncPeriod: 20s, syncPeriod: 10s}",
	"masqueradeBit 32":                   "iptables: {masqueradeBit: 32}",
	"masqueradeBit -1":                   "iptables: {masqueradeBit: -1}",
	"nft masqueradeBit 32 mode nft":      "mode: nftables\nnftables: {masqueradeBit: 32}",
	"nft masqueradeBit 32 mode iptables": "mode: iptables\nnftables: {masqueradeBit: 32}",
	"ipt masqueradeBit 32 mode nft":      "mode: nftables\niptables: {masqueradeBit: 32}",
	"bindAddress bad":                    "bindAddress: bogus",
	"bindAddress v6":                     `bindAddress: "::"`,
	"bindAddress cidr":                   "bindAddress: 10.0.0.1/8",
	"healthz empty":                      `healthzBindAddress: ""`,
	"healthz bare ip":                    "healthzBindAddress: 127.0.0.1",
	"healthz bad port":                   "healthzBindAddress: 127.0.0.1:0",
	"healthz port 70000":                 "healthzBindAddress: 127.0.0.1:70000",
	"healthz name":                       "healthzBindAddress: localhost:10256",
	"healthz :10256":                     `healthzBindAddress: ":10256"`,
	"healthz named port":                 "healthzBindAddress: 127.0.0.1:http",
	"metrics empty":                      `metricsBindAddress: ""`,
	"metrics bare v6":                    `metricsBindAddress: "::1"`,
	"metrics bad":                        "metricsBindAddress: bogus",
	"metrics port 0":                     "metricsBindAddress: 127.0.0.1:0",
	"oomScoreAdj 1001":                   "oomScoreAdj: 1001",
	"oomScoreAdj -1001":                  "oomScoreAdj: -1001",
	"conntrack maxPerCore neg":           "conntrack: {maxPerCore: -1}",
	"conntrack min neg":                  "conntrack: {min: -1}",
	"conntrack est neg":                  "conntrack: {tcpEstablishedTimeout: -1s}",
	"conntrack cw neg":                   "conntrack: {tcpCloseWaitTimeout: -1s}",
	"conntrack udp neg":                  "conntrack: {udpTimeout: -1s}",
	"conntrack udpstream neg":            "conntrack: {udpStreamTimeout: -1s}",
	"conntrack maxPerCore null":          "conntrack: {maxPerCore: null}",
	"burst neg":                          "clientConnection: {burst: -1}",
	"qps neg":                            "clientConnection: {qps: -1}",
	"contentType odd":                    "clientConnection: {contentType: odd}",
	"npa bad cidr":                       "nodePortAddresses: [10.0.0.0/33]",
	"npa word":                           "nodePortAddresses: [bogus]",
	"npa primary+cidr":                   "nodePortAddresses: [primary, 10.0.0.0/8]",
	"npa cidr+primary":                   "nodePortAddresses: [10.0.0.0/8, primary]",
	"npa primary":                        "nodePortAddresses: [primary]",
	"npa localhost":                      "nodePortAddresses: [localhost]",
	"npa all":                            "nodePortAddresses: [all]",
	"npa all+primary+localhost":          "nodePortAddresses: [all, primary, localhost]",
	"npa dup":                            "nodePortAddresses: [10.0.0.0/8, 10.0.0.0/8]",
	"npa overlap":                        "nodePortAddresses: [10.0.0.0/8, 10.1.0.0/16]",
	"npa empty string":                   `nodePortAddresses: [""]`,
	"npa PRIMARY":                        "nodePortAddresses: [PRIMARY]",
	"npa hostbits":                       "nodePortAddresses: [10.0.0.1/8]",
	"npa two primaries":                  "nodePortAddresses: [primary, primary]",
	"portRange bad":                      "portRange: bogus",
	"portRange rev":                      "portRange: 200-100",
	"portRange ok":                       "portRange: 100-200",
	"portRange big":                      "portRange: 1-70000",
	"ipvs tcpTimeout neg":                "mode: ipvs\nipvs: {tcpTimeout: -1s}",
	"ipvs tcpFin neg":                    "mode: ipvs\nipvs: {tcpFinTimeout: -1s}",
	"ipvs udp neg":                       "mode: ipvs\nipvs: {udpTimeout: -1s}",
	"ipvs tcpTimeout neg iptables mode":  "mode: iptables\nipvs: {tcpTimeout: -1s}",
	"ipvs excludeCIDRs bad":              "mode: ipvs\nipvs: {excludeCIDRs: [bogus]}",
	"ipvs excludeCIDRs bad iptables":     "mode: iptables\nipvs: {excludeCIDRs: [bogus]}",
	"ipvs scheduler odd":                 "mode: ipvs\nipvs: {scheduler: odd}",
	"featureGates unknown":               "featureGates: {Bogus: true}",
	"featureGates bad type":              `featureGates: {NFTablesNetlink: "true"}`,
	"logging format bad":                 "logging: {format: bogus}",
	"logging json":                       "logging: {format: json}",
	"logging verbosity neg":              "logging: {verbosity: -1}",
	"logging flush neg":                  "logging: {flushFrequency: -1s}",
	"showHidden bad":                     "showHiddenMetricsForVersion: bogus",
	"showHidden 1.36":                    `showHiddenMetricsForVersion: "1.36"`,
	"showHidden 1.20":                    `showHiddenMetricsForVersion: "1.20"`,
	"several errors":                     "mode: bogus\noomScoreAdj: 1001\nbindAddress: bogus",
	"hostnameOverride blank":             `hostnameOverride: "  "`,
	"hostnameOverride upper":             "hostnameOverride: NODE-A",
	"windowsRunAsService":                "windowsRunAsService: true",
}

// differs are the inputs that are answered otherwise here, on purpose.
var differs = map[string]string{
	"bridge long":          "no interface can have the name, and the kernel would refuse every rule",
	"featureGates unknown": "a list shared with other components starts the proxy; the gate is reported",
}

var factRow = regexp.MustCompile(`^# (.+?)\s+rc (\d)\s+(not )?written\s*(\S*)$`)

// TestFilesAsKubeProxy: every file that was given to kube-proxy is taken or
// refused likewise, and a refusal names the same fields.
func TestFilesAsKubeProxy(t *testing.T) {
	rows := 0
	for _, line := range lines(t, "config-defaults.yaml") {
		m := factRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		rows++
		name, refused := m[1], m[2] == "1"
		t.Run(name, func(t *testing.T) {
			text, known := inputs[name]
			if !known {
				t.Fatal("no input of that name")
			}
			if whole, found := strings.CutPrefix(text, "="); found {
				text = whole
			} else {
				text = head + text + "\n"
			}
			_, _, err := load(t, FileFirst, "--config", write(t, text))
			if differs[name] != "" {
				if (err != nil) == refused {
					t.Errorf("the same as kube-proxy, though listed as different: %v", err)
				}
				return
			}
			if (err != nil) != refused {
				t.Fatalf("error %v, kube-proxy refuses: %t", err, refused)
			}
			for _, path := range strings.Split(m[4], ",") {
				if err != nil && !strings.Contains(err.Error(), path) {
					t.Errorf("%s is not named in: %v", path, err)
				}
			}
		})
	}
	if rows != len(inputs) {
		t.Errorf("%d rows were read for %d inputs", rows, len(inputs))
	}
}

// TestWrittenAsKubeProxy: the defaults of every mode are kube-proxy's, but for
// the least times between writes and the nodePortAddresses of nftables mode.
func TestWrittenAsKubeProxy(t *testing.T) {
	text := strings.Join(lines(t, "config-defaults.yaml"), "\n")
	_, first, _ := strings.Cut(text, "\n---\n")
	first, _, _ = strings.Cut(first, "# --- 2")
	for mode, change := range map[string]func(m map[string]any){
		"iptables": func(map[string]any) {},
		"nftables": func(m map[string]any) {
			m["iptables"].(map[string]any)["syncPeriod"], m["iptables"].(map[string]any)["minSyncPeriod"] = "0s", "0s"
			m["nftables"].(map[string]any)["syncPeriod"], m["nftables"].(map[string]any)["minSyncPeriod"] = "30s", "10ms"
		},
		"ipvs": func(m map[string]any) {
			m["iptables"].(map[string]any)["syncPeriod"], m["iptables"].(map[string]any)["minSyncPeriod"] = "0s", "0s"
			m["ipvs"].(map[string]any)["syncPeriod"], m["ipvs"].(map[string]any)["minSyncPeriod"] = "30s", "1s"
		},
	} {
		want := unmarshal(t, []byte(first))
		want["mode"] = mode
		change(want)
		fromFlags, _, err := load(t, FileFirst, "--proxy-mode", mode)
		if err != nil {
			t.Fatal(err)
		}
		fromFile, _, err := load(t, FileFirst, "--config", write(t, head+"mode: "+mode+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]Config{"flags": fromFlags, "file": fromFile} {
			if diff := cmp.Diff(want, written(t, c)); diff != "" {
				t.Errorf("%s from %s (-kube-proxy +ours):\n%s", mode, name, diff)
			}
		}
	}
}

// What is written is read as the same.
func TestWrittenIsRead(t *testing.T) {
	c, _, err := load(t, FileFirst, "--manifests", "/etc/services", "--node-ip", "192.0.2.1", "--cluster-cidr", "10.0.0.0/8", "--v", "3")
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, warnings, err := load(t, FileFirst, "--config", write(t, string(text)), "--strict-config")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if diff := cmp.Diff(written(t, c), written(t, again)); diff != "" || !slices.Equal(again.Options.Manifests, []string{"/etc/services"}) || !slices.Equal(again.Options.NodeIPs, []string{"192.0.2.1"}) {
		t.Errorf("%+v\n%s", again.Options, diff)
	}
}

func written(t *testing.T, c Config) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(c.Written())
	if err != nil {
		t.Fatal(err)
	}
	return unmarshal(t, text)
}

func unmarshal(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func lines(t *testing.T, name string) (out []string) {
	t.Helper()
	f, err := os.Open(filepath.Join(facts, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		out = append(out, s.Text())
	}
	return out
}
