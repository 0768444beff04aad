package main

import (
	"log/slog"

	"portolan/service"
)

// newDetectorLog returns a function that says, whenever it changes, in which
// families pods cannot be told from others: there they get no special treatment,
// and what is sent to a cluster IP from outside is not masqueraded.
func newDetectorLog(mode string, families []service.Family, log *slog.Logger) func(service.Node) {
	blind := map[service.Family]bool{}
	return func(n service.Node) {
		for _, f := range families {
			now := !n.Detector.Detects(f)
			if now && !blind[f] {
				log.Warn("pods cannot be told from others", "family", f.String(), "detectLocalMode", mode, "reason", "no pod CIDR of this family is known")
			}
			blind[f] = now
		}
	}
}
