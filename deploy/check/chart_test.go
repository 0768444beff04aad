package check

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// With its own values the chart asks for what the base asks for.
func TestChartIsTheBase(t *testing.T) {
	ours, base := chart(t, ""), kustomized(t, "../base")
	plain(t, ours)
	plain(t, base)
	if diff := cmp.Diff(base, ours); diff != "" {
		t.Errorf("deploy/base (-) and deploy/chart (+):\n%s", diff)
	}
	sysctls, over := chart(t, "setSysctls: true"), kustomized(t, "../sysctls")
	plain(t, sysctls)
	plain(t, over)
	if diff := cmp.Diff(over, sysctls); diff != "" {
		t.Errorf("deploy/sysctls (-) and deploy/chart with setSysctls (+):\n%s", diff)
	}
}

// plain takes away what only helm or only kustomize adds, and turns the files of the
// ConfigMap into what they say.
func plain(t *testing.T, all objects) {
	t.Helper()
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	// The hash that kustomize hangs on the name of a ConfigMap.
	name := fmt.Sprint(all["ConfigMap"].at("metadata", "name"))
	text = []byte(strings.ReplaceAll(string(text), name+"\n", "portolan\n"))
	clear(all)
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		withoutHelm(o.at("metadata"))
	}
	withoutHelm(all["DaemonSet"].at("spec", "template", "metadata"))
	data := all["ConfigMap"]["data"].(map[string]any)
	for file, text := range data {
		data[file] = documents(t, text.(string))
	}
}

func withoutHelm(metadata any) {
	m := metadata.(map[string]any)
	labels, _ := m["labels"].(map[string]any)
	maps.DeleteFunc(labels, func(k string, _ any) bool {
		return strings.HasPrefix(k, "helm.sh/") || slices.Contains([]string{
			"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"}, k)
	})
	annotations, _ := m["annotations"].(map[string]any)
	delete(annotations, "checksum/config")
	if len(annotations) == 0 {
		delete(m, "annotations")
	}
}

func documents(t *testing.T, text string) (out []map[string]any) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var d map[string]any
		if err := yaml.UnmarshalStrict([]byte(doc), &d); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		out = append(out, d)
	}
	return out
}

// chartValues are values and what they change.
var chartValues = []struct {
	name, values, kind string
	path               []any
	want               string // as YAML
}{
	{"image", "image: {repository: registry.example/portolan, tag: v9}", "DaemonSet", podPath("containers", 0, "image"), "registry.example/portolan:v9"},
	{"digest before tag", "image: {tag: v9, digest: sha256:" + strings.Repeat("ab", 32) + "}", "DaemonSet", podPath("containers", 0, "image"), "portolan@sha256:" + strings.Repeat("ab", 32)},
	{"pull policy", "image: {pullPolicy: Always}", "DaemonSet", podPath("containers", 0, "imagePullPolicy"), "Always"},
	{"pull secrets", "imagePullSecrets: [{name: registry}]", "DaemonSet", podPath("imagePullSecrets"), "[{name: registry}]"},
	{"resources", "resources: {requests: {cpu: 1}, limits: {memory: 1Gi}}", "DaemonSet", podPath("containers", 0, "resources"), "{requests: {cpu: 1, memory: 64Mi}, limits: {memory: 1Gi}}"},
	{"no tolerations", "tolerations: []", "DaemonSet", podPath("tolerations"), "null"},
	{"tolerations", "tolerations: [{key: a, operator: Exists}]", "DaemonSet", podPath("tolerations"), "[{key: a, operator: Exists}]"},
	{"priority class", "priorityClassName: mine", "DaemonSet", podPath("priorityClassName"), "mine"},
	{"node selector", "nodeSelector: {pool: edge}", "DaemonSet", podPath("nodeSelector"), "{kubernetes.io/os: linux, pool: edge}"},
	{"affinity", "affinity: {nodeAffinity: {}}", "DaemonSet", podPath("affinity"), "{nodeAffinity: {}}"},
	{"update strategy", "updateStrategy: {type: OnDelete, rollingUpdate: null}", "DaemonSet", []any{"spec", "updateStrategy"}, "{type: OnDelete}"},
	{"sysctls", "setSysctls: true", "DaemonSet", podPath("initContainers", 0, "securityContext", "privileged"), "true"},
	{"verbosity", "verbosity: 4", "DaemonSet", podPath("containers", 0, "args", 3), "-v=4"},
	{"pod annotations", "podAnnotations: {a: b}", "DaemonSet", []any{"spec", "template", "metadata", "annotations", "a"}, "b"},
	{"pod labels", "podLabels: {a: b}", "DaemonSet", []any{"spec", "template", "metadata", "labels", "a"}, "b"},
	{"seccomp", "seccompProfile: {type: Localhost, localhostProfile: portolan.json}", "DaemonSet", podPath("securityContext", "seccompProfile"), "{type: Localhost, localhostProfile: portolan.json}"},
	{"port of the probe", "config: {healthzBindAddress: '127.0.0.1:7777'}", "DaemonSet", podPath("containers", 0, "livenessProbe", "httpGet", "port"), "7777"},
	{"port of metrics", monitored("'[::]:7778'"), "DaemonSet", podPath("containers", 0, "ports"), "[{name: metrics, containerPort: 7778}]"},
	{"pod monitor", monitored("'0.0.0.0:10249'") + "\n  labels: {release: prometheus}", "PodMonitor", []any{"metadata", "labels", "release"}, "prometheus"},
	{"interval", monitored("'0.0.0.0:10249'") + "\n  interval: 5s", "PodMonitor", []any{"spec", "podMetricsEndpoints", 0, "interval"}, "5s"},
}

// podPath is a path inside of the DaemonSet's pods.
func podPath(path ...any) []any { return append([]any{"spec", "template", "spec"}, path...) }

// What each value of the chart makes of the objects.
func TestChartValues(t *testing.T) {
	for _, c := range chartValues {
		t.Run(c.name, func(t *testing.T) {
			var want any
			if err := yaml.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, chart(t, c.values)[c.kind].at(c.path...)); diff != "" {
				t.Errorf("%s: wanted (-), got (+):\n%s", c.values, diff)
			}
		})
	}
}

func monitored(address string) string {
	return "config: {metricsBindAddress: " + address + "}\npodMonitor:\n  enabled: true"
}

// What the values say of the configuration is in the file, every pod hears of a
// change, and the chart's own fields stay.
func TestChartConfig(t *testing.T) {
	const values = `
apiServer: https://192.0.2.1:6443
config:
  mode: iptables
  nodePortAddresses: [primary]
  iptables: {masqueradeAll: true, minSyncPeriod: 2s}
  clientConnection: {qps: 50, kubeconfig: /elsewhere}
options:
  nodeIPs: [192.0.2.11]
`
	all := chart(t, values)
	got := documents(t, all["ConfigMap"].at("data", "config.conf").(string))
	var want []map[string]any
	if err := yaml.Unmarshal([]byte(`
- apiVersion: kubeproxy.config.k8s.io/v1alpha1
  kind: KubeProxyConfiguration
  mode: iptables
  detectLocalMode: NodeCIDR
  metricsBindAddress: 127.0.0.1:10249
  oomScoreAdj: -997
  nodePortAddresses: [primary]
  iptables: {masqueradeAll: true, minSyncPeriod: 2s}
  clientConnection: {qps: 50, kubeconfig: /etc/portolan/kubeconfig.conf}
- apiVersion: portolan.io/v1alpha1
  kind: ProxyOptions
  nodeIPs: [192.0.2.11]
`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wanted (-), got (+):\n%s", diff)
	}
	if text := all["ConfigMap"].at("data", "kubeconfig.conf").(string); !strings.Contains(text, "server: https://192.0.2.1:6443\n") {
		t.Errorf("kubeconfig without the API server:\n%s", text)
	}
	sum := []any{"spec", "template", "metadata", "annotations", "checksum/config"}
	for _, other := range []string{"apiServer: https://192.0.2.1:6443", "config: {mode: nftables}", "options: {nodeIPs: [192.0.2.12]}"} {
		if chart(t, other)["DaemonSet"].at(sum...) == chart(t, "")["DaemonSet"].at(sum...) {
			t.Errorf("%s: pods stay as they are", other)
		}
	}
}

// Values that cannot be right are refused, and what is said names them.
func TestChartRefuses(t *testing.T) {
	for _, c := range []struct{ name, values, says string }{
		{"no API server", `apiServer: ""`, "apiServer: name the API server's address"},
		{"an address that is no URL", "apiServer: control-plane:6443", "/apiServer"},
		{"misspelt value", "tolerationz: []", "tolerationz"},
		{"misspelt field", "config: {moode: iptables}", "moode"},
		{"misspelt field inside", "config: {iptables: {masquerade: true}}", "masquerade"},
		{"misspelt option", "options: {nodeIP: [192.0.2.1]}", "nodeIP"},
		{"no such mode", "config: {mode: ebpf}", "/config/mode"},
		{"no such mode of detection", "config: {detectLocalMode: NodeCidr}", "/config/detectLocalMode"},
		{"text for a number", "config: {oomScoreAdj: low}", "/config/oomScoreAdj"},
		{"no duration", "config: {iptables: {syncPeriod: soon}}", "/config/iptables/syncPeriod"},
		{"no digest", "image: {digest: v1}", "/image/digest"},
		{"no pull policy", "image: {pullPolicy: Sometimes}", "/image/pullPolicy"},
		{"Localhost without a file", "seccompProfile: {type: Localhost}", "localhostProfile"},
		{"metrics on loopback watched from elsewhere", "podMonitor: {enabled: true}", "config.metricsBindAddress 127.0.0.1:10249"},
		{"IPv6 loopback too", monitored("'[::1]:10249'"), "config.metricsBindAddress [::1]:10249"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := renderChart(parseValues(t, c.values))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: wanted an error about %q, got %v\n%s", c.values, c.says, err, text)
			}
		})
	}
}

// The chart and the base are of one version.
func TestChartVersions(t *testing.T) {
	var c struct{ Version, AppVersion string }
	read(t, "../chart/Chart.yaml", &c)
	var k struct{ Images []struct{ NewTag string } }
	read(t, "../base/kustomization.yaml", &k)
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(c.AppVersion) || c.AppVersion != "v"+c.Version || len(k.Images) != 1 || k.Images[0].NewTag != c.AppVersion {
		t.Errorf("chart %s of %s, base of %v", c.Version, c.AppVersion, k.Images)
	}
}
