package main

import (
	"log/slog"

	"portolan/source/manifests"
)

// newProblemLog returns a function that logs problems when they come, once.
func newProblemLog(log *slog.Logger) func([]manifests.Problem) {
	known := map[string]bool{}
	return func(problems []manifests.Problem) {
		now := map[string]bool{}
		for _, p := range problems {
			text := p.Error()
			now[text] = true
			if known[text] {
				continue
			}
			if p.Warning {
				log.Warn("manifest", "warning", text)
			} else {
				log.Error("manifest refused", "error", text)
			}
		}
		known = now
	}
}
