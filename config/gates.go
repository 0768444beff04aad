package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/component-base/featuregate"
)

const gateIPVS = "KubeProxyIPVS"

// gates are those of Kubernetes 1.37 that a Service proxy knows. Those of other
// components are accepted and reported, since lists are shared.
var gates = map[featuregate.Feature]featuregate.FeatureSpec{
	"AllAlpha":                            {PreRelease: featuregate.Alpha},
	"AllBeta":                             {PreRelease: featuregate.Beta},
	"ComponentFlagz":                      {Default: true, PreRelease: featuregate.Beta},
	"ComponentStatusz":                    {Default: true, PreRelease: featuregate.Beta},
	"ContextualLogging":                   {Default: true, PreRelease: featuregate.Beta},
	"KubeProxyIPVS":                       {Default: true, PreRelease: featuregate.Deprecated},
	"KubeProxyNFTablesLocalhostNodePorts": {PreRelease: featuregate.Alpha},
	"LoggingAlphaOptions":                 {PreRelease: featuregate.Alpha},
	"LoggingBetaOptions":                  {Default: true, PreRelease: featuregate.Beta},
	"MultiCIDRServiceAllocator":           {Default: true, LockToDefault: true},
	"NFTablesNetlink":                     {Default: true, PreRelease: featuregate.Beta},
	"NFTablesProxyMode":                   {Default: true, LockToDefault: true},
	"PreferSameTrafficDistribution":       {Default: true, LockToDefault: true},
	"WatchListClient":                     {Default: true, PreRelease: featuregate.Beta},
}

// checkGates refuses to turn off what cannot be.
func checkGates(given map[string]bool) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if spec := gates[featuregate.Feature(name)]; spec.LockToDefault && given[name] != spec.Default {
			errs = append(errs, fmt.Errorf("config: %s.featureGates: %s is locked to %t", kind, name, spec.Default))
		}
	}
	return errors.Join(errs...)
}

// gateWarnings says which gates change nothing here, though they were given.
func gateWarnings(given map[string]bool) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		_, known := gates[featuregate.Feature(name)]
		switch {
		case !known:
			out = append(out, fmt.Sprintf("feature gate %s is not known here and changes nothing", name))
		case name == gateIPVS:
			out = append(out, fmt.Sprintf("feature gate %s is deprecated", name))
		case name == "KubeProxyNFTablesLocalhostNodePorts" && given[name]:
			out = append(out, fmt.Sprintf("feature gate %s changes nothing: in nftables mode NodePorts answer on loopback where nodePortAddresses asks for it, as by the word localhost", name))
		}
	}
	return out
}

// gateSet is what component-base asks about gates.
type gateSet map[string]bool

func (g gateSet) enabled(name featuregate.Feature) bool {
	if on, given := g[string(name)]; given {
		return on
	}
	return gates[name].Default
}
