package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"portolan/config"
	"portolan/healthcheck"
	"portolan/service"
	"portolan/source/apiserver"
	"portolan/source/kube"
	"portolan/source/manifests"
)

// errNoInput is for commands that read nothing but files.
var errNoInput = errors.New("no input: name files or folders with --manifests PATH, or in a ProxyOptions document of the file of --config")

// input is where Services come from.
type input struct {
	// follow follows the cluster and publishes what it knows, until ctx ends. Settings
	// that change meanwhile come as functions.
	follow func(ctx context.Context, settings <-chan func(*kube.Settings), publish func(*service.Snapshot)) error
	// tell makes an Event, where there is somebody to keep it.
	tell func(apiserver.Note)
	// conditions tell whether the API server is heard, or what of the files is refused.
	conditions func() []healthcheck.Condition
}

// newInput reads files into the cluster when some are named, else from an API server.
func newInput(c config.Config, cluster *kube.Cluster, nodeName string, log *slog.Logger) (input, error) {
	if len(c.Options.Manifests) > 0 {
		problems := newProblemLog(log)
		follow := func(ctx context.Context, settings <-chan func(*kube.Settings), publish func(*service.Snapshot)) error {
			return manifests.New(c.Options.Manifests, cluster).Watch(ctx, settings, func(s *service.Snapshot, found []manifests.Problem) {
				problems.report(found)
				if s != nil {
					publish(s)
				}
			})
		}
		return input{follow, func(apiserver.Note) {}, problems.conditions}, nil
	}
	client, err := connect(c)
	if err != nil {
		return input{}, err
	}
	source := apiserver.New(client, cluster, apiserver.Options{
		NodeName: nodeName,
		PodCIDRs: kube.DetectMode(c.DetectLocalMode) == kube.DetectNodeCIDR,
		Log:      log,
	})
	heard := func() []healthcheck.Condition { return contactCondition(source.Contacts(), time.Now()) }
	return input{source.Watch, source.Tell, heard}, nil
}

// connect prepares to ask the API server that the configuration names.
func connect(c config.Config) (*apiserver.Client, error) {
	client, err := apiserver.Connect(apiserver.Connection{
		Kubeconfig:  c.Client.Kubeconfig,
		Master:      c.Client.Master,
		ContentType: c.Client.ContentType,
		Accept:      c.Client.AcceptContentTypes,
		QPS:         c.Client.QPS,
		Burst:       c.Client.Burst,
		UserAgent:   "portolan/" + version,
	})
	if err != nil {
		if c.Client.Kubeconfig != "" || c.Client.Master != "" {
			return nil, fmt.Errorf("the API server cannot be asked: %w", err)
		}
		return nil, fmt.Errorf("no input: name files or folders with --manifests PATH, or an API server with --kubeconfig FILE or --master URL, or run in a cluster: %w", err)
	}
	return client, nil
}
