package check

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// alertRules are those of deploy/monitoring by name.
func alertRules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	const file = "../monitoring/alerts.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatalf("%s: %v", file, errs)
	}
	out := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			out[r.Alert] = r
		}
	}
	return out
}

// Alerts are complete, and take metrics that there are.
func TestAlerts(t *testing.T) {
	for name, r := range alertRules(t) {
		checkMetrics(t, "alert "+name, r.Expr)
		if !strings.HasPrefix(name, "Portolan") || r.For == 0 || r.Annotations["summary"] == "" || r.Annotations["description"] == "" ||
			!slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("alert %s: %+v", name, r)
		}
	}
}

// checkMetrics says which metrics of an expression nobody exports.
func checkMetrics(t *testing.T, where, expression string) {
	t.Helper()
	docs, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	found := 0
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		found++
		name := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(selector.Name, "")
		there, _, _ := strings.Cut(string(docs), "## kube-proxy's that are missing")
		if name != "up" && !strings.Contains(there, "`"+name+"`") {
			t.Errorf("%s: docs/metrics.md has no %s", where, name)
		}
		return nil
	})
	if found == 0 {
		t.Errorf("%s: no metric in %s", where, expression)
	}
}

// alertCases are series with one value a minute, and whether an alert begins to wait
// after an hour of them.
var alertCases = []struct {
	alert, why, series string
	fires              bool
}{
	{"PortolanDown", "no answer", `up{job="kube-system/portolan", instance="a"} 0x60`, true},
	{"PortolanDown", "an answer", `up{job="kube-system/portolan", instance="a"} 1x60`, false},
	{"PortolanDown", "somebody else", `up{job="node-exporter", instance="a"} 0x60`, false},
	{"PortolanChangesNotWritten", "queued, not written", `
			kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 3000x60
			kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"} 3100x60`, true},
	{"PortolanChangesNotWritten", "nothing to write", `
			kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 3000x60
			kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"} 2999x60`, false},
	{"PortolanChangesNotWritten", "one change after the other", `
			kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 3590x60
			kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"} 3599x60`, false},
	{"PortolanWritesFail", "failures", `portolan_sync_failures_total{ip_family="IPv4"} 0+1x60`, true},
	{"PortolanWritesFail", "failures of long ago", `portolan_sync_failures_total{ip_family="IPv4"} 7x60`, false},
	{"PortolanServicesNotProgrammed", "one", `portolan_failed_services{ip_family="IPv4"} 1x60`, true},
	{"PortolanServicesNotProgrammed", "none", `portolan_failed_services{ip_family="IPv4"} 0x60`, false},
	{"PortolanAddressConflict", "one", `portolan_address_conflicts{ip_family="IPv4"} 1x60`, true},
	{"PortolanAddressConflict", "none", `portolan_address_conflicts{ip_family="IPv4"} 0x60`, false},
	{"PortolanServiceWithoutEndpoints", "none on any node", `portolan_service_blocked_frontends{service="web", reason="no_endpoints"} 2x60`, true},
	{"PortolanServiceWithoutEndpoints", "elsewhere only", `portolan_service_blocked_frontends{service="web", reason="no_local_endpoints"} 2x60`, false},
	{"PortolanConntrackFull", "nearly", `
			portolan_conntrack_entries{instance="a"} 95x60
			portolan_conntrack_entries_max{instance="a"} 100x60`, true},
	{"PortolanConntrackFull", "half", `
			portolan_conntrack_entries{instance="a"} 50x60
			portolan_conntrack_entries_max{instance="a"} 100x60`, false},
	{"PortolanRulesDamaged", "again and again", `portolan_repairs_total{ip_family="IPv4"} 0+1x60`, true},
	{"PortolanRulesDamaged", "once, long ago", `portolan_repairs_total{ip_family="IPv4"} 1x60`, false},
	{"PortolanProgrammingSlow", "half a minute", `
			kubeproxy_network_programming_duration_seconds_bucket{instance="a", le="25"} 0x60
			kubeproxy_network_programming_duration_seconds_bucket{instance="a", le="30"} 0+9x60
			kubeproxy_network_programming_duration_seconds_bucket{instance="a", le="+Inf"} 0+9x60`, true},
	{"PortolanProgrammingSlow", "a second", `
			kubeproxy_network_programming_duration_seconds_bucket{instance="a", le="1"} 0+9x60
			kubeproxy_network_programming_duration_seconds_bucket{instance="a", le="+Inf"} 0+9x60`, false},
	{"PortolanAPIServerErrors", "no connection", `rest_client_requests_total{code="<error>"} 0+30x60`, true},
	{"PortolanAPIServerErrors", "answers", `rest_client_requests_total{code="200"} 0+30x60`, false},
	{"PortolanModesDiffer", "two", `
			portolan_proxy_mode{mode="iptables", instance="a"} 1x60
			portolan_proxy_mode{mode="nftables", instance="b"} 1x60`, true},
	{"PortolanModesDiffer", "one", `
			portolan_proxy_mode{mode="iptables", instance="a"} 1x60
			portolan_proxy_mode{mode="iptables", instance="b"} 1x60`, false},
}

// When each alert begins to wait, and when it does not.
func TestAlertsFire(t *testing.T) {
	const at = time.Hour // after 0, when series begin
	rules := alertRules(t)
	tried := map[string]bool{}
	for _, c := range alertCases {
		t.Run(c.alert+", "+c.why, func(t *testing.T) {
			tried[c.alert] = tried[c.alert] || c.fires
			storage := promqltest.LoadedStorage(t, "load 1m\n"+indent(c.series))
			engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
			query, err := engine.NewInstantQuery(t.Context(), storage, nil, rules[c.alert].Expr, time.Unix(0, 0).Add(at))
			if err != nil {
				t.Fatal(err)
			}
			defer query.Close()
			result := query.Exec(t.Context())
			if result.Err != nil {
				t.Fatal(result.Err)
			}
			if vector := result.Value.(promql.Vector); (len(vector) > 0) != c.fires {
				t.Errorf("%s\ngives %v", rules[c.alert].Expr, vector)
			}
		})
	}
	for name := range rules {
		if !tried[name] {
			t.Errorf("alert %s: no case in which it fires", name)
		}
	}
}

func indent(series string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.TrimSpace(series)) {
		fmt.Fprintf(&out, "  %s\n", strings.TrimSpace(line))
	}
	return out.String()
}

// dashboard is what is checked of a dashboard of Grafana.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		ID          int
		Type, Title string
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ RefID, Expr string }
	}
}

// The dashboard's panels ask for metrics that there are, and stand beside each other.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || len(d.Panels) < 10 {
		t.Fatalf("dashboard %q with %d panels", d.UID, len(d.Panels))
	}
	variables := strings.NewReplacer("$instance", ".*", "$__rate_interval", "5m")
	ids, places := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || (p.Type != "row") != (len(p.Targets) > 0) {
			t.Errorf("panel %d %q of type %s with %d queries", p.ID, p.Title, p.Type, len(p.Targets))
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := places[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q stands on %q", p.Title, other)
				}
				places[[2]int{x, y}] = p.Title
			}
		}
		for _, q := range p.Targets {
			checkMetrics(t, "panel "+p.Title, variables.Replace(q.Expr))
		}
	}
}
