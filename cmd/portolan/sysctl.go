package main

import (
	"log/slog"
	"os"
	"strings"
)

// warnAboutForwarding says what an operator finds out late: without forwarding
// the kernel drops what the rules send to pods.
func warnAboutForwarding(log *slog.Logger) {
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if now, err := os.ReadFile("/proc/sys/" + name); err == nil && len(now) > 0 && now[0] == '0' {
			log.Warn("the kernel does not forward packets, so Services do not answer but from this node; set it to 1", "sysctl", strings.ReplaceAll(name, "/", "."))
		}
	}
}

const routeLocalnet = "/proc/sys/net/ipv4/conf/all/route_localnet"

// allowLocalhostNodePorts lets the kernel route what is sent to a NodePort on
// 127.0.0.1, as kube-proxy does. Where that cannot be set, NodePorts do not answer
// on loopback, and everything else works.
func allowLocalhostNodePorts(log *slog.Logger) bool {
	if now, err := os.ReadFile(routeLocalnet); err == nil && len(now) > 0 && now[0] == '1' {
		return true
	}
	if err := os.WriteFile(routeLocalnet, []byte("1"), 0); err != nil {
		log.Warn("NodePorts will not answer on 127.0.0.1", "error", err)
		return false
	}
	return true
}
