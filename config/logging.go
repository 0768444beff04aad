package config

import (
	"errors"
	"fmt"
	"math"
	"strings"

	logsapi "k8s.io/component-base/logs/api/v1"
)

func loggingOf(c *logsapi.LoggingConfiguration) Logging {
	return Logging{
		Format:    c.Format,
		Verbosity: int(c.Verbosity),
		VModule:   logsapi.VModuleConfigurationPflag(&c.VModule).String(),
	}
}

// checkLogging applies the rules of component-base, under the names that the
// fields have in the file.
func checkLogging(c *logsapi.LoggingConfiguration, given map[string]bool) error {
	var errs []error
	refuse := func(field string, value any, text string) {
		errs = append(errs, fmt.Errorf("config: logging.%s: invalid value %#v: %s", field, value, text))
	}
	if c.Format != "text" && c.Format != "json" {
		refuse("format", c.Format, "must be text or json")
	}
	if c.FlushFrequency.Duration.Duration <= 0 {
		refuse("flushFrequency", c.FlushFrequency.Duration.Duration.String(), "must be greater than 0")
	}
	if c.Verbosity > math.MaxInt32 {
		refuse("verbosity", c.Verbosity, fmt.Sprintf("must not be greater than %d", math.MaxInt32))
	}
	if len(c.VModule) > 0 && c.Format == "json" {
		refuse("vmodule", loggingOf(c).VModule, "works with the format text only")
	}
	for i, item := range c.VModule {
		if item.FilePattern == "" || strings.ContainsAny(item.FilePattern, "=,") || item.Verbosity > math.MaxInt32 {
			refuse(fmt.Sprintf("vmodule[%d]", i), item.FilePattern, "must be a pattern without = and comma")
		}
	}
	alpha := gateSet(given).enabled(logsapi.LoggingAlphaOptions)
	for name, o := range map[string]logsapi.OutputRoutingOptions{"text": c.Options.Text.OutputRoutingOptions, "json": c.Options.JSON.OutputRoutingOptions} {
		if o.SplitStream && !alpha {
			refuse("options."+name+".splitStream", true, "the feature gate LoggingAlphaOptions is off")
		}
		if o.InfoBufferSize.Value() != 0 && !alpha {
			refuse("options."+name+".infoBufferSize", o.InfoBufferSize.String(), "the feature gate LoggingAlphaOptions is off")
		}
	}
	return errors.Join(errs...)
}
