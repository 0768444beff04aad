package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"strings"

	"portolan/config"
	"portolan/kernel/sysctl"
)

// host is the machine whose kernel is set up.
const host = sysctl.Host("/")

// setUpKernel writes the sysctls of the configuration, and how soon the kernel
// ends this process when memory runs out. What cannot be written is told and left:
// Services work without it.
func setUpKernel(c config.Config, log *slog.Logger) (missing bool) {
	oom := sysctl.Setting{File: "proc/self/oom_score_adj", Value: c.OOMScoreAdj, Lower: sysctl.Always}
	writeSettings([]sysctl.Setting{oom}, log)
	return setUpConntrack(c, log)
}

// setUpConntrack tells whether files are missing, as they are until the kernel
// tracks connections.
func setUpConntrack(c config.Config, log *slog.Logger) (missing bool) {
	return writeSettings(sysctl.Conntrack(c.Conntrack).Settings(host.CPUs()), log)
}

// writeSettings writes what differs, and logs what stays as it is and why. It tells whether
// some file is not there.
func writeSettings(settings []sysctl.Setting, log *slog.Logger) (missing bool) {
	d := sysctl.Plan(settings, host.Read)
	for _, c := range d.Kept {
		log.Info("a higher value stays", "file", "/"+c.File, "value", c.Now, "wanted", c.Value)
	}
	for _, err := range d.Unknown {
		missing = missing || errors.Is(err, fs.ErrNotExist)
		log.Warn("the kernel's value is not known, so it is not set", "error", err)
	}
	done, err := host.Apply(d.Write)
	for _, c := range done {
		log.Info("kernel value set", "file", "/"+c.File, "value", c.Value, "before", c.Now)
	}
	if err != nil {
		log.Warn("kernel values stay as they are", "error", err)
	}
	return missing
}

// warnAboutForwarding says what an operator finds out late: without forwarding
// the kernel drops what the rules send to pods, and without the bridge's call of
// iptables the answers of pods on one bridge pass the rules by.
func warnAboutForwarding(log *slog.Logger) {
	for name, text := range map[string]string{
		"proc/sys/net/ipv4/ip_forward":                 "the kernel does not forward packets, so Services do not answer but from this node; set it to 1",
		"proc/sys/net/ipv6/conf/all/forwarding":        "the kernel does not forward packets, so Services do not answer but from this node; set it to 1",
		"proc/sys/net/bridge/bridge-nf-call-iptables":  "pods on one bridge get no answer from Services whose endpoint is on it too; set it to 1",
		"proc/sys/net/bridge/bridge-nf-call-ip6tables": "pods on one bridge get no answer from Services whose endpoint is on it too; set it to 1",
	} {
		if now, err := host.Read(name); err == nil && now == 0 {
			log.Warn(text, "sysctl", strings.ReplaceAll(strings.TrimPrefix(name, "proc/sys/"), "/", "."))
		}
	}
}

// allowLocalhostNodePorts lets the kernel route what is sent to a NodePort on
// 127.0.0.1, as kube-proxy does. Where that cannot be set, NodePorts do not answer
// on loopback, and everything else works.
func allowLocalhostNodePorts(log *slog.Logger) bool {
	route := sysctl.Setting{File: "proc/sys/net/ipv4/conf/all/route_localnet", Value: 1}
	writeSettings([]sysctl.Setting{route}, log)
	now, err := host.Read(route.File)
	if err != nil || now == 0 {
		log.Warn("NodePorts will not answer on 127.0.0.1", "reason", "route_localnet is not set")
		return false
	}
	return true
}
