package main

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"portolan/healthcheck"
	"portolan/source/manifests"
)

// problemLog logs problems of manifests when they come, once, and remembers those that
// are there. One goroutine may report while others ask.
type problemLog struct {
	log   *slog.Logger
	known map[string]bool

	mu      sync.Mutex
	told    bool
	refused []string
	since   time.Time // something is refused
}

func newProblemLog(log *slog.Logger) *problemLog {
	return &problemLog{log: log, known: map[string]bool{}}
}

// report takes all problems that there are now.
func (l *problemLog) report(problems []manifests.Problem) {
	now := map[string]bool{}
	var refused []string
	for _, p := range problems {
		text := p.Error()
		if !p.Warning {
			refused = append(refused, text)
		}
		now[text] = true
		switch {
		case l.known[text]:
		case p.Warning:
			l.log.Warn("manifest", "warning", text)
		default:
			l.log.Error("manifest refused", "error", text)
		}
	}
	l.known = now
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.refused) == 0 {
		l.since = time.Now()
	}
	l.told, l.refused = true, refused
}

// conditions tells whether something is refused, which is not in force or as it was.
func (l *problemLog) conditions() []healthcheck.Condition {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.told {
		return nil
	}
	c := healthcheck.Condition{Type: healthcheck.ManifestsRead, Status: "True", Message: "no document is refused"}
	if len(l.refused) > 0 {
		since := l.since.UTC()
		c.Status, c.Since, c.Message = "False", &since, l.refused[0]
		if more := len(l.refused) - 1; more > 0 {
			c.Message = fmt.Sprintf("%s; and %d more, which the log has", c.Message, more)
		}
	}
	return []healthcheck.Condition{c}
}
