package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"portolan/netfilter/detect"
	"portolan/trace"
	"portolan/trace/explain"
	"portolan/trace/journey"
)

// runTraceAcross follows a packet over the nodes of several dumps.
func runTraceAcross(cmd *cobra.Command, f traceFlags) error {
	flow, note, err := f.flow()
	if err != nil {
		return err
	}
	switch {
	case f.output != "text" && f.output != "json":
		return fmt.Errorf("trace: -o %s with --dump: it is neither text nor json", f.output)
	case len(f.where.rules) > 0 || f.where.host != "":
		return errors.New("trace: --dump NODE=PATH names what is known of each node; leave out --rules and --host")
	}
	nodes, warnings, err := f.nodes(cmd)
	if err != nil {
		return err
	}
	story, err := journey.Follow(nodes, flow, f.at)
	if err != nil {
		return fmt.Errorf("trace: %w (--at NODE)", err)
	}
	if note != "" {
		story.Assumptions = append([]string{note}, story.Assumptions...)
	}
	story.Assumptions = append(story.Assumptions, warnings...)
	out := explain.StoryText(story)
	if f.output == "json" {
		b, err := json.MarshalIndent(explain.StoryJSON(story), "", "  ")
		if err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		out = string(b) + "\n"
	}
	if _, err := fmt.Fprint(cmd.OutOrStdout(), out); err != nil {
		return fmt.Errorf("trace: writing the answer: %w", err)
	}
	return storyExit(story)
}

// nodes reads the dumps.
func (f traceFlags) nodes(cmd *cobra.Command) (nodes []journey.Node, warnings []string, err error) {
	opt := trace.Options{Reply: true}
	if len(f.manifests) > 0 {
		if opt.Names, err = nameChains(cmd.Context(), f.manifests); err != nil {
			return nil, nil, fmt.Errorf("trace: naming chains: %w", err)
		}
	}
	paths := map[string][]string{}
	var names []string
	for _, d := range f.dumps {
		name, path, ok := strings.Cut(d, "=")
		if !ok || name == "" || path == "" {
			return nil, nil, fmt.Errorf("trace: --dump %s is not NODE=PATH", d)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		paths[name] = append(paths[name], path)
	}
	for _, name := range names {
		texts, err := detect.Read(paths[name]...)
		if err != nil {
			return nil, nil, fmt.Errorf("trace: --dump of node %s: %w", name, err)
		}
		host, err := detect.Host(detect.Options{Table: f.where.table}, texts...)
		if err != nil {
			return nil, nil, fmt.Errorf("trace: node %s: %w", name, err)
		}
		if len(host.Interfaces) == 0 {
			return nil, nil, fmt.Errorf("trace: node %s: nothing in %s tells its addresses: add ip addr and ip route, or a host.yaml", name, strings.Join(paths[name], ", "))
		}
		for _, w := range host.Warnings {
			warnings = append(warnings, name+": "+w)
		}
		nodes = append(nodes, journey.Node{Name: name, Tracer: trace.New(host, opt)})
	}
	return nodes, warnings, nil
}

// storyExit is bad news when some packets are lost or not answered, and cannot tell
// where that is in doubt.
func storyExit(s journey.Story) error {
	code := 0
	for i := range s.Ways {
		w := &s.Ways[i]
		switch {
		case !w.Certain() || w.Verdict() == trace.Unknown:
			return exitError{code: exitCannotTell}
		case w.Verdict().Lost() || !w.Answered:
			code = exitBadNews
		}
	}
	if code == 0 {
		return nil
	}
	return exitError{code: code}
}
