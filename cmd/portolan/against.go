package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	backend "portolan/backend/iptables"
	"portolan/config"
	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/service"
)

// difference is what would be written to make one family hold what is wanted.
type difference struct {
	family service.Family
	plan   dataplane.Plan
}

// compare returns what differs between what is wanted and the rules of
// the kernel ("kernel") or of an iptables-save output (the name of a file).
func (w wanted) compare(ctx context.Context, against string) ([]difference, error) {
	switch w.config.Mode {
	case config.NFTables:
		return w.compareTables(ctx, against)
	case config.IPVS:
		return w.compareServers(ctx, against)
	}
	texts, err := w.rulesOf(ctx, against)
	if err != nil {
		return nil, err
	}
	return w.compareTexts(ctx, texts)
}

// compareTexts is compare for rules as iptables-save prints them.
func (w wanted) compareTexts(ctx context.Context, texts map[service.Family]string) ([]difference, error) {
	var out []difference
	for _, f := range w.families {
		text, ok := texts[f]
		if !ok {
			continue
		}
		b := backend.New(backend.OptionsOf(planOptions(w.config, f), text))
		sync := dataplane.NewSync(backend.NewDump(b, text))
		if _, err := renderAll(b, sync, w.services); err != nil {
			return nil, err
		}
		plan, err := sync.Diff(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, difference{f, plan})
	}
	return out, nil
}

// kernelRules are the rules of this host, read as iptables-save would.
func kernelRules(ctx context.Context, families []service.Family) (map[service.Family]string, error) {
	host, err := iptables.Detect(ctx)
	if err != nil {
		return nil, err
	}
	out := map[service.Family]string{}
	for _, f := range toolFamilies {
		if !slices.Contains(families, f.model) {
			continue
		}
		tool := host.Tool(f.tool)
		var b strings.Builder
		for _, table := range []string{"filter", "nat", "mangle"} {
			if !tool.Loaded(table) { // to ask for it would load it
				continue
			}
			b.WriteString("*" + table + "\n")
			for line, err := range tool.Save(ctx, table) {
				if err != nil {
					return nil, err
				}
				if !strings.HasPrefix(line, "*") {
					b.WriteString(line + "\n")
				}
			}
		}
		out[f.model] = b.String()
	}
	return out, nil
}

// printDifferences prints them, and returns an exitError when there are any.
func printDifferences(w io.Writer, list []difference, output string) error {
	var err error
	if output == "json" {
		err = printDifferencesJSON(w, list)
	} else {
		err = printDifferencesText(w, list)
	}
	for _, d := range list {
		if !d.plan.Empty() {
			return errors.Join(err, exitError{code: exitBadNews})
		}
	}
	return err
}

// printDifferencesText prints them as diff does.
func printDifferencesText(w io.Writer, list []difference) error {
	for _, d := range list {
		if d.plan.Empty() {
			if _, err := fmt.Fprintf(w, "# %s: nothing to do\n", d.family); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(w, "# %s: %d chains to write\n%s", d.family, len(d.plan.Changes), d.plan); err != nil {
			return err
		}
	}
	return nil
}

// jsonChange is one line, element or server that differs.
type jsonChange struct {
	Family    string `json:"family"`
	Action    string `json:"action"` // create, replace or delete
	Container string `json:"container"`
	Old       string `json:"old,omitempty"`
	New       string `json:"new,omitempty"`
}

func printDifferencesJSON(w io.Writer, list []difference) error {
	changes := []jsonChange{}
	for _, d := range list {
		for _, c := range d.plan.Changes {
			for _, o := range c.Deleted {
				changes = append(changes, jsonChange{d.family.String(), "delete", c.Container, o.Body, ""})
			}
			for _, r := range c.Replaced {
				changes = append(changes, jsonChange{d.family.String(), "replace", c.Container, r.Old.Body, r.New.Body})
			}
			for _, o := range c.Created {
				changes = append(changes, jsonChange{d.family.String(), "create", c.Container, "", o.Body})
			}
		}
	}
	return printJSON(w, struct {
		APIVersion string       `json:"apiVersion"`
		Changes    []jsonChange `json:"changes"`
	}{"portolan.io/v1", changes})
}
