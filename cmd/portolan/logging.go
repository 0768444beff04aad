package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"k8s.io/klog/v2"

	"portolan/config"
)

// newLog returns the log that a configuration asks for. Verbosity n shows slog
// levels down to -n, so that from 4 on every sync is told. Libraries of Kubernetes
// log to the same place, at the same verbosity; --vmodule is about them.
//
// setVerbosity changes it while the log is in use.
func newLog(c config.Logging, w io.Writer) (log *slog.Logger, setVerbosity func(int) error, err error) {
	level := &slog.LevelVar{}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if c.Format == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	log = slog.New(handler)
	set := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(set)
	setVerbosity = func(v int) error {
		if v < 0 {
			return fmt.Errorf("log: verbosity %d", v)
		}
		level.Set(slog.Level(-v))
		return set.Set("v", strconv.Itoa(v))
	}
	if err := setVerbosity(int(c.Verbosity)); err != nil {
		return nil, nil, err
	}
	if err := set.Set("vmodule", c.VModule); err != nil {
		return nil, nil, fmt.Errorf("log: --vmodule: %w", err)
	}
	klog.SetSlogLogger(log)
	return log, setVerbosity, nil
}
