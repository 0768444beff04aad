package config

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// Flags are kube-proxy's flags, our own, and the file that stands beside them.
type Flags struct {
	File   string
	strict bool

	set     *pflag.FlagSet
	from    kubeproxy.KubeProxyConfiguration
	outside outside
	options ProxyOptions
}

// outside are flags without a field in the file.
type outside struct {
	master                   string
	healthzPort, metricsPort int32
}

// AddFlags defines the flags that make a configuration.
func AddFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{set: set}
	set.StringVar(&f.File, "config", "", "file with a KubeProxyConfiguration; it stands above the other flags of kube-proxy but --hostname-override, --master and those of logging; when it changes the process ends")
	set.BoolVar(&f.strict, "strict-config", false, "take unknown and duplicate fields of the file of --config for errors, not warnings")
	SetDefaults(&f.from)
	bind(set, &f.from, &f.outside)
	f.options.bind(set)
	return f
}

// besideFile are the flags that count beside a file, as in kube-proxy 1.37.
var besideFile = []string{
	"hostname-override", "master",
	"v", "vmodule", "logging-format", "log-flush-frequency",
	"log-text-split-stream", "log-text-info-buffer-size", "log-json-split-stream", "log-json-info-buffer-size",
}

// Precedence says which flags stand above a file.
type Precedence uint8

// The proxy itself is FileFirst; commands that only look are FlagsFirst, so that something
// else can be tried on the file of a node.
const (
	FileFirst  Precedence = iota // but for those that count beside a file in kube-proxy
	FlagsFirst                   // every flag that was given
)

// Config returns the checked configuration, and warnings.
func (f *Flags) Config(precedence Precedence) (Config, []string, error) {
	from, warnings := f.from.DeepCopy(), []string(nil)
	options, data := f.options, []byte(nil)
	if f.File != "" {
		file, err := read(f.File, f.strict)
		if err != nil {
			return Config{}, nil, err
		}
		from, warnings, data = file.proxy, file.warnings, file.data
		passedOver, err := f.overlay(from, precedence)
		if err != nil {
			return Config{}, nil, err
		}
		if len(passedOver) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s: beside a file these flags do not count, as in kube-proxy: %s; set their fields in it", f.File, strings.Join(passedOver, ", ")))
		}
		options = options.above(file.options, f.set)
	} else {
		SetDefaults(from) // an empty value counts as not given
		f.deprecatedPorts(from)
	}
	if flag := f.set.Lookup("hostname-override"); flag.Changed {
		name := strings.ToLower(strings.TrimSpace(f.from.HostnameOverride))
		if name == "" {
			return Config{}, nil, errors.New("config: flag --hostname-override: the name is empty")
		}
		from.HostnameOverride = name
	}
	c, err := New(from)
	options.TypeMeta = metav1.TypeMeta{APIVersion: optionsVersion, Kind: optionsKind}
	c.Client.Master, c.Options, c.path, c.data = f.outside.master, options, f.File, data
	return c, append(warnings, notes(from)...), errors.Join(err, options.check())
}

// overlay gives flags to a configuration from a file, all or those that count beside
// one, and returns the names of the others. They are parsed a second time, by flags that
// write into it.
func (f *Flags) overlay(onto *kubeproxy.KubeProxyConfiguration, precedence Precedence) (passedOver []string, err error) {
	set := pflag.NewFlagSet("overlay", pflag.ContinueOnError)
	set.SetOutput(io.Discard) // what is deprecated was said by the first
	modules := onto.Logging.VModule
	onto.Logging.VModule = nil
	bind(set, onto, &outside{})
	var errs []error
	f.set.Visit(func(given *pflag.Flag) {
		flag := set.Lookup(given.Name)
		if flag == nil {
			return
		}
		if precedence == FileFirst && !slices.Contains(besideFile, given.Name) {
			passedOver = append(passedOver, "--"+given.Name)
			return
		}
		if list, ok := given.Value.(pflag.SliceValue); ok {
			errs = append(errs, flag.Value.(pflag.SliceValue).Replace(list.GetSlice()))
			return
		}
		errs = append(errs, flag.Value.Set(given.Value.String()))
	})
	onto.Logging.VModule = append(onto.Logging.VModule, modules...) // the first match counts
	return passedOver, errors.Join(errs...)
}

// deprecatedPorts gives bare addresses the port of --healthz-port and
// --metrics-port; 0 leaves the server without an address.
func (f *Flags) deprecatedPorts(c *kubeproxy.KubeProxyConfiguration) {
	for _, p := range []struct {
		given string // the address as it was given
		field *string
		port  int32
	}{
		{f.from.HealthzBindAddress, &c.HealthzBindAddress, f.outside.healthzPort},
		{f.from.MetricsBindAddress, &c.MetricsBindAddress, f.outside.metricsPort},
	} {
		switch ip, err := netip.ParseAddr(p.given); {
		case p.port == 0:
			*p.field = ""
		case err == nil:
			*p.field = hostPort(ip, p.port)
		}
	}
}

// notes says what was accepted and changes nothing.
func notes(c *kubeproxy.KubeProxyConfiguration) []string {
	out := gateWarnings(c.FeatureGates)
	for _, o := range []struct {
		field string
		set   bool
	}{
		{"logging.options.text", c.Logging.Options.Text.SplitStream || c.Logging.Options.Text.InfoBufferSize.Value() != 0},
		{"logging.options.json", c.Logging.Options.JSON.SplitStream || c.Logging.Options.JSON.InfoBufferSize.Value() != 0},
	} {
		if o.set {
			out = append(out, fmt.Sprintf("%s changes nothing: everything is logged to standard error, at once", o.field))
		}
	}
	return out
}

// above returns o where flags of the set gave it, else what the file says.
func (o ProxyOptions) above(file ProxyOptions, set *pflag.FlagSet) ProxyOptions {
	if len(o.Manifests) > 0 {
		file.Manifests = o.Manifests
	}
	if len(o.NodeIPs) > 0 {
		file.NodeIPs = o.NodeIPs
	}
	if set.Changed("tcp-reset") {
		file.TCPReset = o.TCPReset
	}
	if set.Changed("ipvs-drain-timeout") {
		file.IPVSDrainTimeout = o.IPVSDrainTimeout
	}
	if o.IPTables.Layout != "" {
		file.IPTables.Layout = o.IPTables.Layout
	}
	return file
}
