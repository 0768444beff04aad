package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// samples give each flag a value that is not its default, and say which field it
// changes ("" for none in the file).
var samples = map[string][2]string{
	"bind-address":                      {"::1", "bindAddress"},
	"bind-address-hard-fail":            {"true", "bindAddressHardFail"},
	"cluster-cidr":                      {"10.0.0.0/8", "clusterCIDR"},
	"config-sync-period":                {"1m0s", "configSyncPeriod"},
	"conntrack-max-per-core":            {"7", "conntrack.maxPerCore"},
	"conntrack-min":                     {"7", "conntrack.min"},
	"conntrack-tcp-be-liberal":          {"true", "conntrack.tcpBeLiberal"},
	"conntrack-tcp-timeout-close-wait":  {"7s", "conntrack.tcpCloseWaitTimeout"},
	"conntrack-tcp-timeout-established": {"7s", "conntrack.tcpEstablishedTimeout"},
	"conntrack-udp-timeout":             {"7s", "conntrack.udpTimeout"},
	"conntrack-udp-timeout-stream":      {"7s", "conntrack.udpStreamTimeout"},
	"detect-local-mode":                 {"NodeCIDR", "detectLocalMode"},
	"feature-gates":                     {"WatchListClient=false", "featureGates"},
	"healthz-bind-address":              {"127.0.0.1:7", "healthzBindAddress"},
	"healthz-port":                      {"0", "healthzBindAddress"},
	"hostname-override":                 {"node-a", "hostnameOverride"},
	"iptables-localhost-nodeports":      {"false", "iptables.localhostNodePorts"},
	"iptables-masquerade-bit":           {"7", "iptables.masqueradeBit"},
	"iptables-min-sync-period":          {"7s", "iptables.minSyncPeriod nftables.minSyncPeriod"},
	"iptables-sync-period":              {"7s", "iptables.syncPeriod nftables.syncPeriod"},
	"ipvs-exclude-cidrs":                {"10.0.0.0/8", "ipvs.excludeCIDRs"},
	"ipvs-min-sync-period":              {"7s", ""}, // of the mode alone
	"ipvs-scheduler":                    {"wrr", "ipvs.scheduler"},
	"ipvs-strict-arp":                   {"true", "ipvs.strictARP"},
	"ipvs-sync-period":                  {"7s", ""},
	"ipvs-tcp-timeout":                  {"7s", "ipvs.tcpTimeout"},
	"ipvs-tcpfin-timeout":               {"7s", "ipvs.tcpFinTimeout"},
	"ipvs-udp-timeout":                  {"7s", "ipvs.udpTimeout"},
	"kube-api-burst":                    {"7", "clientConnection.burst"},
	"kube-api-content-type":             {"application/json", "clientConnection.contentType"},
	"kube-api-qps":                      {"7", "clientConnection.qps"},
	"kubeconfig":                        {"/k", "clientConnection.kubeconfig"},
	"log-flush-frequency":               {"7s", "logging.flushFrequency"},
	"log-json-info-buffer-size":         {"7", "logging.options.json.infoBufferSize"},
	"log-json-split-stream":             {"true", "logging.options.json.splitStream"},
	"log-text-info-buffer-size":         {"7", "logging.options.text.infoBufferSize"},
	"log-text-split-stream":             {"true", "logging.options.text.splitStream"},
	"logging-format":                    {"json", "logging.format"},
	"masquerade-all":                    {"true", "iptables.masqueradeAll nftables.masqueradeAll"},
	"master":                            {"https://x", ""},
	"metrics-bind-address":              {"127.0.0.1:7", "metricsBindAddress"},
	"metrics-port":                      {"7", ""}, // the address has a port
	"nodeport-addresses":                {"primary", "nodePortAddresses"},
	"oom-score-adj":                     {"7", "oomScoreAdj"},
	"pod-bridge-interface":              {"br0", "detectLocal.bridgeInterface"},
	"pod-interface-name-prefix":         {"veth", "detectLocal.interfaceNamePrefix"},
	"profiling":                         {"true", "enableProfiling"},
	"proxy-mode":                        {"iptables", "mode nftables.minSyncPeriod nftables.syncPeriod"},
	"show-hidden-metrics-for-version":   {"1.36", "showHiddenMetricsForVersion"},
	"v":                                 {"7", "logging.verbosity"},
	"vmodule":                           {"a=7", "logging.vmodule"},
}

// ofProcess are the rows of the table that say what the process does; the command
// defines them.
var ofProcess = []string{"config", "cleanup", "help", "init-only", "version", "write-config-to"}

// needsGate are flags that component-base refuses without its gate of alpha
// options.
func needsGate(flag string) bool {
	return strings.HasSuffix(flag, "-split-stream") || strings.HasSuffix(flag, "-info-buffer-size")
}

// TestEveryFlagOfKubeProxy: each flag is there with kube-proxy's default, reaches
// its field alone, and counts beside a file only where it does in kube-proxy.
func TestEveryFlagOfKubeProxy(t *testing.T) {
	beside := map[string]bool{"hostname-override": true, "v": true, "vmodule": true, "logging-format": true, "log-flush-frequency": true}
	rows := 0
	for _, row := range lines(t, "flags.tsv") {
		if strings.HasPrefix(row, "#") {
			continue
		}
		columns := strings.Split(row, "\t")
		name := strings.TrimPrefix(columns[0], "--")
		rows++
		if isOfProcess(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			sample, known := samples[name]
			if !known {
				t.Fatal("no sample value")
			}
			checkDefault(t, name, columns[1], columns[3])
			args := []string{"--" + name + "=" + sample[0]}
			var base []string
			if needsGate(name) {
				base = []string{"--feature-gates", "LoggingAlphaOptions=true"}
			}
			if got := changed(t, base, append(base, args...)); got != sample[1] {
				t.Errorf("changes %q, not %q", got, sample[1])
			}
			file := write(t, head+"featureGates: {LoggingAlphaOptions: true}\n")
			want := ""
			if beside[name] || needsGate(name) {
				want = sample[1]
			}
			if got := changed(t, []string{"--config", file}, append(args, "--config", file)); got != want {
				t.Errorf("beside a file it changes %q, not %q", got, want)
			}
		})
	}
	if rows != 57 {
		t.Errorf("%d rows were read", rows)
	}
}

func isOfProcess(name string) bool {
	for _, n := range ofProcess {
		if n == name {
			return true
		}
	}
	return false
}

func checkDefault(t *testing.T, name, short, want string) {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(set)
	flag := set.Lookup(name)
	if flag == nil {
		t.Fatal("no such flag")
	}
	if strings.TrimPrefix(short, "-") != flag.Shorthand {
		t.Errorf("shorthand %q, not %q", flag.Shorthand, short)
	}
	switch want, _, _ = strings.Cut(want, " ("); want {
	case `""`, "none":
		want = ""
	}
	if name == "detect-local-mode" {
		want = DetectClusterCIDR // kube-proxy shows nothing and fills it in later
	}
	if strings.Trim(want, `"`) != flag.DefValue {
		t.Errorf("default %q, not %q", flag.DefValue, want)
	}
}

// changed returns the fields in which two command lines differ.
func changed(t *testing.T, before, after []string) string {
	t.Helper()
	a, _, err := load(t, FileFirst, before...)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := load(t, FileFirst, after...)
	if err != nil {
		t.Fatal(err)
	}
	var r paths
	cmp.Equal(written(t, a), written(t, b), cmp.Reporter(&r))
	return strings.Join(r.found, " ")
}

// paths collects where two values differ.
type paths struct {
	path  cmp.Path
	found []string
}

func (r *paths) PushStep(s cmp.PathStep) { r.path = append(r.path, s) }
func (r *paths) PopStep()                { r.path = r.path[:len(r.path)-1] }
func (r *paths) Report(result cmp.Result) {
	if result.Equal() {
		return
	}
	var names []string
	for _, s := range r.path {
		if key, ok := s.(cmp.MapIndex); ok {
			names = append(names, fmt.Sprint(key.Key()))
		}
	}
	r.found = append(r.found, strings.Join(names, "."))
}

// Flags that mean more than one field, or something else when they are empty.
func TestSpecialFlags(t *testing.T) {
	for _, tt := range []struct {
		name  string
		args  []string
		right func(Config) bool
	}{
		{"a bare address gets the deprecated port", []string{"--healthz-bind-address", "127.0.0.1", "--healthz-port", "7"}, func(c Config) bool { return c.HealthzBindAddress == "127.0.0.1:7" }},
		{"and the default one", []string{"--metrics-bind-address", "::1"}, func(c Config) bool { return c.MetricsBindAddress == "[::1]:10249" }},
		{"an empty address is the default", []string{"--metrics-bind-address", "", "--healthz-bind-address", ""}, func(c Config) bool {
			return c.MetricsBindAddress == "127.0.0.1:10249" && c.HealthzBindAddress == "0.0.0.0:10256"
		}},
		{"no health server", []string{"--healthz-port", "0"}, func(c Config) bool { return c.HealthzBindAddress == "" }},
		{"iptables periods reach nftables mode", []string{"--proxy-mode", "nftables", "--iptables-sync-period", "9s"}, func(c Config) bool { return c.SyncPeriod.Seconds() == 9 }},
		{"but not ipvs mode", []string{"--proxy-mode", "ipvs", "--iptables-sync-period", "9s"}, func(c Config) bool { return c.SyncPeriod.Seconds() == 30 }},
		{"those of ipvs do", []string{"--proxy-mode", "ipvs", "--ipvs-sync-period", "9s", "--ipvs-min-sync-period", "2s"}, func(c Config) bool { return c.SyncPeriod.Seconds() == 9 && c.MinSyncPeriod.Seconds() == 2 }},
		{"ipvs obeys masqueradeAll", []string{"--proxy-mode", "ipvs", "--masquerade-all"}, func(c Config) bool { return c.MasqueradeAll }},
		{"the address of the node", []string{"--bind-address", "192.0.2.1"}, func(c Config) bool { return c.BindAddress.String() == "192.0.2.1" }},
		{"the host name is trimmed", []string{"--hostname-override", " Node-A "}, func(c Config) bool { return c.Hostname == "node-a" }},
	} {
		c, _, err := load(t, FileFirst, tt.args...)
		if err != nil || !tt.right(c) {
			t.Errorf("%s: %+v, %v", tt.name, c, err)
		}
	}
	for name, args := range map[string][]string{
		"no metrics port": {"--metrics-port", "0"},
		"only blanks":     {"--hostname-override", "  "},
		"a locked gate":   {"--feature-gates", "NFTablesProxyMode=false"},
		"no ipvs":         {"--proxy-mode", "ipvs", "--feature-gates", "KubeProxyIPVS=false"},
	} {
		if c, _, err := load(t, FileFirst, args...); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestFlagsThatCannotBeRead(t *testing.T) {
	for _, arg := range []string{
		"--bind-address=x", "--healthz-bind-address=localhost:1", "--metrics-bind-address=127.0.0.1:70000", "--oom-score-adj=x",
		"--iptables-sync-period=x", "--masquerade-all=x", "--feature-gates=x", "--conntrack-min=1.5", "--no-such-flag",
	} {
		set := pflag.NewFlagSet("test", pflag.ContinueOnError)
		AddFlags(set)
		if err := set.Parse([]string{arg}); err == nil {
			t.Errorf("%s is taken", arg)
		}
	}
}

// The entries of the flag stand before those of the file, since the first match
// counts.
func TestVmodulesAreJoined(t *testing.T) {
	path := write(t, head+"logging: {vmodule: [{filePattern: a, verbosity: 1}]}\n")
	c, _, err := load(t, FileFirst, "--config", path, "--vmodule", "b=2")
	if err != nil || c.Logging.VModule != "b=2,a=1" {
		t.Errorf("%q, %v", c.Logging.VModule, err)
	}
}
