package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"portolan/cmd/portolan/demo"
	"portolan/lab"
	"portolan/trace/explain"
)

// walk is the walk that lab run ends with: from the last pod to the Service of
// the first call, by way of another node if there is one.
func (b builtLab) walk() (demo.Walk, bool) {
	if len(b.plan.Calls) == 0 {
		return demo.Walk{}, false
	}
	call := b.plan.Calls[0]
	w := demo.Walk{Proto: call.Proto, To: call.To, Tries: 10, Trace: traceIn(b.program, b.manifests)}
	for _, n := range b.Nodes() {
		w.Nodes = append(w.Nodes, &n.Host)
	}
	w.Hosts = append(w.Hosts, b.Client)
	for _, p := range b.plan.Topology.Pods {
		w.Hosts = append(w.Hosts, &b.Pod(p.Name).Host)
	}
	w.From = hostOf(call.From, w)
	return w, w.From != nil
}

func hostOf(name string, w demo.Walk) *lab.Host {
	for _, h := range append(append([]*lab.Host(nil), w.Nodes...), w.Hosts...) {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// traceIn has this program trace a new connection in a node; the manifests name
// Services.
func traceIn(self string, manifests []string) func(context.Context, *lab.Host, string, string, netip.Addr, netip.AddrPort) (explain.Answer, error) {
	return func(ctx context.Context, node *lab.Host, in, proto string, src netip.Addr, dst netip.AddrPort) (explain.Answer, error) {
		args := []string{"trace", "--src", src.String(), "--dst", dst.String(), "--proto", proto, "-o", "json", "--local"}
		if in != "" {
			args = append(args[:len(args)-1], "--in", in)
		}
		for _, path := range manifests {
			args = append(args, "--manifests", path)
		}
		var answer explain.Answer
		var out, said bytes.Buffer
		err := node.Do(func() error {
			cmd := exec.CommandContext(ctx, self, args...)
			cmd.Stdout, cmd.Stderr = &out, &said
			return cmd.Run()
		})
		if out.Len() == 0 { // an answer that is bad news is an answer
			return answer, fmt.Errorf("lab: trace in %s: %w: %s", node.Name, err, strings.TrimSpace(said.String()))
		}
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			return answer, fmt.Errorf("lab: trace in %s: %w", node.Name, err)
		}
		return answer, nil
	}
}
