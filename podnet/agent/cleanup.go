package agent

import (
	"context"
	"errors"

	"portolan/dataplane"
	"portolan/podnet"
	"portolan/podnet/linux"
)

// Cleanup removes what the pod network of the Options has on this node, whoever
// made it: devices, routes, rules and files. Pods of other nodes are not reached
// any more.
func Cleanup(ctx context.Context, o Options) error {
	self, err := linux.Discover(o.Choice, o.Annotations, podnet.Node{Name: o.NodeName}, o.Config.Families())
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range o.Config.Families() {
		network, err := linux.Open(f, o.Config.NetworkOf(f), self.Device)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, removeAll(ctx, network, f, o))
		network.Close()
		if r := o.Rules[f]; r.Kernel != nil {
			errs = append(errs, removeAll(ctx, r.Kernel, f, o))
		}
	}
	for _, path := range []string{o.SubnetFile, o.CNIFile} {
		errs = append(errs, removeFile(path))
	}
	return errors.Join(errs...)
}

// removeAll brings a kernel to what nobody asks for.
func removeAll(ctx context.Context, k dataplane.Kernel, f podnet.Family, o Options) error {
	r, err := dataplane.NewSync(k).Reconcile(ctx)
	errs := []error{err}
	for _, rejection := range r.Rejected {
		errs = append(errs, rejection.Err)
	}
	o.Log.Info("removed", "family", f, "objects", r.Deleted)
	return errors.Join(errs...)
}
