package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"

	"k8s.io/klog/v2"

	"portolan/config"
)

// newLog returns the log that a configuration asks for. Verbosity n shows slog
// levels down to -n, so that from 4 on every sync is told. Libraries of Kubernetes
// log to the same place, at the same verbosity; --vmodule is about them.
func newLog(c config.Logging, w io.Writer) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: slog.Level(-c.Verbosity)}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if c.Format == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	log := slog.New(handler)
	set := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(set)
	for name, value := range map[string]string{"v": fmt.Sprint(c.Verbosity), "vmodule": c.VModule} {
		if err := set.Set(name, value); err != nil {
			return nil, fmt.Errorf("log: --%s: %w", name, err)
		}
	}
	klog.SetSlogLogger(log)
	return log, nil
}
