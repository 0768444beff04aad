package main

import (
	"testing"

	"github.com/spf13/pflag"

	"portolan/config"
	"portolan/service"
)

// R161: --proxy-mode=ipvs, and --ipvs-scheduler, which is rr unless it is given.
func TestR161Flags(t *testing.T) {
	for want, args := range map[string][]string{"rr": {"--proxy-mode=ipvs"}, "lc": {"--proxy-mode=ipvs", "--ipvs-scheduler=lc"}} {
		set := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
		flags := config.AddFlags(set)
		if err := set.Parse(args); err != nil {
			t.Fatal(err)
		}
		c, _, err := flags.Config(false)
		if err != nil || c.Mode != config.IPVS {
			t.Fatalf("%v: %s, %v", args, c.Mode, err)
		}
		if got := ipvsOptions(c, service.IPv4).Scheduler; got != want {
			t.Errorf("%v: scheduler %q", args, got)
		}
	}
}
