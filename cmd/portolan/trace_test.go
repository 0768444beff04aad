package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// portolanTrace runs trace and gives its output and exit code.
func portolanTrace(t *testing.T, args ...string) (string, int, error) {
	t.Helper()
	cmd := newTraceCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	var exit exitError
	switch {
	case err == nil:
		return out.String(), 0, nil
	case errors.As(err, &exit):
		return out.String(), exit.code, exit.err
	}
	return out.String(), exitCannotTell, err
}

const (
	tracedNode = "../../testdata/dumps/004-kubeadm-v1.34.2-flannel-iptables-mode.nat.restore.txt"
	tracedHost = "../../trace/testdata/node004/host.yaml"
)

func TestTraceExitCodes(t *testing.T) {
	node := []string{"--rules", tracedNode, "--host", tracedHost}
	for _, c := range []struct {
		args string
		more []string
		code int
		want string
	}{
		{"--src 172.22.7.200 --dst 172.22.7.89:31532 --in eth0", node, 0, "forward: "},
		{"--src 10.244.0.9 --dst 10.96.0.10:53 --proto udp", node, 0, "one of 2 endpoints of kube-system/kube-dns:dns"},
		{"--src 127.0.0.1 --dst 127.0.0.1:31532 --local", node, 0, "output: "},
		{"--src 172.22.7.89 --dst 172.22.7.89:22 --hook output", node, 0, "input: "},
		{"--src 172.22.7.200 --dst 127.0.0.1:80 --in cni0 --hook prerouting", append([]string{"--proto", "tcp"}, node...), 0, "input: "},
		{"--src 224.0.0.1 --dst 172.22.7.89:80 --in eth0", node, 1, "drop: "},
		{"--src 172.22.7.200 --dst 172.22.7.89:31532 --in eth0", []string{"--rules", tracedNode}, 2, "uncertain: "},
		{"--src 172.22.7.200 --dst 172.22.7.89", node, 0, "the packet is an ICMP echo request"},
	} {
		out, code, err := portolanTrace(t, append(strings.Fields(c.args), c.more...)...)
		if code != c.code || err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit %d (%v), want %d and %q in\n%s", c.args, code, err, c.code, c.want, out)
		}
	}
}

// What cannot be asked is said, by the name of the flag.
func TestTraceUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":                             "trace: --src and --dst are needed",
		"--src 1.2.3 --dst 1.2.3.4:80": "trace: --src 1.2.3 is neither IP nor IP:PORT",
		"--src ::1 --dst 1.2.3.4:80":   "of different IP families",
		"--src 1.1.1.1 --dst 1.2.3.4:80 --proto x":         "trace: --proto x is neither",
		"--src 1.1.1.1 --dst 1.2.3.4:80 --hook x":          "trace: --hook x is neither",
		"--src 1.1.1.1 --dst 1.2.3.4:80 --mark x":          "trace: --mark x is no number",
		"--src 1.1.1.1 --dst 1.2.3.4:80 --uid root":        "trace: --uid root is no number",
		"--src 1.1.1.1 --dst 1.2.3.4:80 -o xml":            "trace: -o xml is neither",
		"--src 1.1.1.1 --dst 1.2.3.4:80 --local --in eth0": "is not sent by this host",
		"--src 1.1.1.1 --dst 1.2.3.4:80 --host x":          "flag --host describes",
		"--src 1.1.1.1 --dst 1.2.3.4:80 --rules /nowhere":  "/nowhere",
		"--src 1.1.1.1 --dst 1.2.3.4:80 --table fruit":     "flag --table: fruit is none of",
		"--counters a": "trace: --counters takes two files",
	} {
		if _, code, err := portolanTrace(t, strings.Fields(args)...); code != 2 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: exit %d, %v; want %s", args, code, err, want)
		}
	}
}

// The same answer in each form of -o.
func TestTraceFormats(t *testing.T) {
	args := []string{"--src", "10.244.0.9", "--dst", "10.96.0.10:53", "--proto", "udp", "--rules", tracedNode, "--host", tracedHost, "-o"}
	out, _, err := portolanTrace(t, append(args, "json")...)
	var got struct {
		APIVersion string `json:"apiVersion"`
		Outcomes   []struct {
			Share, Verdict, Dst, Service string
			Steps                        []struct{ Chain, Target string }
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.APIVersion != "portolan.io/v1" || len(got.Outcomes) != 2 || got.Outcomes[0].Share != "1/2" || len(got.Outcomes[0].Steps) == 0 {
		t.Errorf("%v %s", err, out)
	}
	if out, _, err := portolanTrace(t, append(args, "dot")...); err != nil || !strings.HasPrefix(out, "digraph trace {") {
		t.Errorf("%v %s", err, out)
	}
}

func TestTraceListRulesWithTable(t *testing.T) {
	out, code, err := portolanTrace(t, "--src", "172.22.7.200", "--dst", "172.22.7.89:31532", "--table", "nat", "--host", tracedHost,
		"--rules", "../../testdata/dumps/004-kubeadm-v1.34.2-flannel-iptables-mode.nat.S.txt")
	if code != 0 || err != nil || !strings.Contains(out, "reaches 10.244.0.4:80") {
		t.Errorf("%d %v %s", code, err, out)
	}
}

// --counters tells which rules grew between two dumps, and whether that adds up.
func TestTraceCounters(t *testing.T) {
	const dumps = "../../testdata/dumps/"
	out, code, err := portolanTrace(t, "--counters", dumps+"004-nat-counters.before.txt", dumps+"004-nat-counters.after-1053-connections.txt")
	if code != 0 || err != nil || !strings.Contains(out, "+1053 packets       +67392 bytes  nat KUBE-MARK-MASQ rule 1") || !strings.Contains(out, "yes  nat POSTROUTING: 1053 ended in KUBE-POSTROUTING (rule 1), 541 reached the policy") {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	out, _, err = portolanTrace(t, "-o", "json", "--counters", dumps+"004-nat-counters.before.txt", dumps+"004-nat-counters.after-1053-connections.txt")
	var got struct{ Grown []struct{ Packets int } }
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Grown) == 0 {
		t.Errorf("%v %s", err, out)
	}
}
