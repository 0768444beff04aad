package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"golang.org/x/sys/unix"

	"portolan/agent"
	"portolan/backend/ipvs"
	"portolan/config"
	"portolan/dataplane"
	"portolan/kernel/iptables"
	kernelipvs "portolan/kernel/ipvs"
	"portolan/kernel/sysctl"
	"portolan/service"
)

// newServers returns a backend for each IP family that tools are there for and whose
// virtual servers this kernel takes. It fails when there is none, and says what is
// missing.
func newServers(ctx context.Context, c config.Config, tools map[service.Family]*iptables.Tool, log *slog.Logger) ([]agent.Family, error) {
	var usable []ipvs.Options
	var watched []*iptables.Tool
	var errs []error
	for _, f := range toolFamilies {
		tool := tools[f.model]
		if tool == nil {
			continue
		}
		o := ipvsOptions(c, f.model)
		o.RandomFully = tool.RandomFully()
		o.LiberalTCP = c.Conntrack.TCPBeLiberal || liberalTCP()
		o.Trouble = func(err error) {
			log.Error("will be tried again", "family", f.model, "error", err)
		}
		var err error
		if o.Kernel, err = openServers(ctx, o, tool); err != nil {
			errs = append(errs, err)
			log.Warn("an IP family is left out", "family", f.model, "error", err)
			continue
		}
		log.Info("ipvs", "family", f.model, "scheduler", o.Scheduler, "iptables", tool.Variant)
		usable, watched = append(usable, o), append(watched, tool)
	}
	if len(usable) == 0 {
		return nil, fmt.Errorf("no IP family can be programmed: %w", errors.Join(errs...))
	}
	watch, err := iptables.NewWatch(watched...) // what was tried before is nobody's change
	if err != nil {
		log.Error("what others do to the rules is noticed late", "error", err)
	} else {
		go watch.Run(ctx)
	}
	var out []agent.Family
	for _, o := range usable {
		o.Watch = watch
		out = append(out, agent.Family{Family: o.Family, Backend: ipvs.New(o)})
	}
	return out, nil
}

// openServers opens the kernel and tries whether it takes what Services ask for.
func openServers(ctx context.Context, o ipvs.Options, tool *iptables.Tool) (*ipvs.Kernel, error) {
	kernel, err := ipvs.OpenKernel(tool)
	if err != nil {
		return nil, err
	}
	o.Kernel = kernel
	if err := ipvs.New(o).Probe(ctx); err != nil {
		kernel.Close()
		return nil, err
	}
	return kernel, nil
}

// ipvsOptions are those that follow from the configuration.
func ipvsOptions(c config.Config, f service.Family) ipvs.Options {
	scheduler := c.IPVS.Scheduler
	if scheduler == "" {
		scheduler = ipvs.DefaultScheduler
	}
	return ipvs.Options{Family: f, MasqueradeBit: c.MasqueradeBit, RandomFully: true, Scheduler: scheduler,
		Exclude: c.IPVS.ExcludeCIDRs, DrainWithin: c.Options.IPVSDrainTimeout.Duration}
}

// setUpIPVS sets what ipvs mode asks of the kernel. It fails where Services would not
// work.
func setUpIPVS(c config.Config, log *slog.Logger) error {
	if c.Mode != config.IPVS {
		return nil
	}
	conn, err := kernelipvs.Dial() // which also brings the files
	if err != nil {
		return err
	}
	defer conn.Close()
	settings := sysctl.IPVS(c.IPVS.StrictARP, kernelRelease())
	writeSettings(settings, log)
	if now, err := host.Read(settings[0].File); err != nil || now != settings[0].Value {
		return fmt.Errorf("ipvs mode needs /%s to be %d, and it cannot be set", settings[0].File, settings[0].Value)
	}
	return conn.SetTimeouts(kernelipvs.Timeouts{TCP: c.IPVS.TCP, TCPFin: c.IPVS.TCPFin, UDP: c.IPVS.UDP})
}

// kernelRelease is the version of the running kernel; 0.0 when it cannot be told.
func kernelRelease() sysctl.Release {
	var name unix.Utsname
	var r sysctl.Release
	if unix.Uname(&name) == nil {
		_, _ = fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &r.Major, &r.Minor)
	}
	return r
}

// compareServers returns what differs between what is wanted and what the kernel has in
// ipvs mode.
func (w wanted) compareServers(ctx context.Context, against string) ([]difference, error) {
	if against != "kernel" {
		return nil, errors.New("flag --against: in ipvs mode only the kernel can be compared with")
	}
	detected, err := iptables.Detect(ctx)
	if err != nil {
		return nil, err
	}
	var out []difference
	for _, f := range toolFamilies {
		if !slices.Contains(w.families, f.model) {
			continue
		}
		o := ipvsOptions(w.config, f.model)
		tool := detected.Tool(f.tool)
		o.RandomFully, o.LiberalTCP = tool.RandomFully(), liberalTCP()
		plan, err := compareServersOf(ctx, o, tool, w.services)
		if err != nil {
			return nil, err
		}
		out = append(out, difference{f.model, plan})
	}
	return out, nil
}

// compareServersOf is compareServers for one family.
func compareServersOf(ctx context.Context, o ipvs.Options, tool *iptables.Tool, s *service.Snapshot) (dataplane.Plan, error) {
	kernel, err := ipvs.OpenKernel(tool)
	if err != nil {
		return dataplane.Plan{}, err
	}
	defer kernel.Close()
	o.Kernel = kernel
	b := ipvs.New(o)
	sync := dataplane.NewSync(b)
	if _, err := renderAll(b, sync, s); err != nil {
		return dataplane.Plan{}, err
	}
	return sync.Diff(ctx)
}

// cleanupServerRules removes the chains of one family that only ipvs mode has.
func cleanupServerRules(ctx context.Context, f service.Family, tools []*iptables.Tool, dryRun bool) (removed []string, err error) {
	for _, tool := range tools {
		lines, failed := ipvs.CleanupRules(ctx, tool, dryRun)
		for _, line := range lines {
			removed = append(removed, fmt.Sprintf("%s %s: %s", f, tool.Variant, line))
		}
		err = errors.Join(err, failed)
	}
	return removed, err
}

// cleanupServers removes virtual servers, addresses and sets of one family, where
// there are any. No rule may match with the sets any more.
func cleanupServers(ctx context.Context, f service.Family, dryRun bool) (removed []string, err error) {
	if there, err := ipvs.Traces(); err != nil || !there {
		return nil, err
	}
	kernel, err := ipvs.OpenKernel(nil)
	if err != nil {
		return nil, err
	}
	defer kernel.Close()
	lines, err := ipvs.New(ipvs.Options{Family: f, Kernel: kernel}).CleanupKernel(ctx, dryRun)
	for _, line := range lines {
		removed = append(removed, fmt.Sprintf("%s ipvs: %s", f, line))
	}
	return removed, err
}

// restoreIPVS gives the sysctls that concern IPVS alone the kernel's own values.
func restoreIPVS(out io.Writer) error {
	d := sysctl.Plan(sysctl.IPVSDefaults(), host.Read)
	done, err := host.Apply(d.Write)
	for _, c := range done {
		fmt.Fprintf(out, "/%s: %d again\n", c.File, c.Value)
	}
	return err
}
