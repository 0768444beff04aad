package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// FollowNodes calls tell with all Nodes once they are listed, and after every
// change, until ctx ends. Of a Node only what a pod network reads is kept. tell
// must not change the Nodes. An API server that is gone is asked again and again;
// what goes wrong is logged when it begins.
func (c *Client) FollowNodes(ctx context.Context, log *slog.Logger, tell func([]*v1.Node)) error {
	wake := make(chan struct{}, 1)
	changed := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	failed := false
	nodes := resource{
		client: c.core, name: "nodes", object: &v1.Node{},
		list: func() runtime.Object { return &v1.NodeList{} },
		trim: func(o runtime.Object) { trimPodNode(o.(*v1.Node)) },
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: nodes.listWatch(func(verb string, err error) {
			if failed != (err != nil) && ctx.Err() == nil {
				if failed = err != nil; failed {
					log.Error("the API server does not answer; what is known stays in force", "verb", verb, "resource", "nodes", "error", err)
				} else {
					log.Info("the API server answers again", "resource", "nodes")
				}
			}
		}),
		ObjectType: &v1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { changed() },
			UpdateFunc: func(any, any) { changed() },
			DeleteFunc: func(any) { changed() },
		},
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		controller.RunWithContext(ctx)
	}()
	defer func() { <-done }()
	if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
		return ctx.Err()
	}
	changed() // a cluster without Nodes is news too
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
		var list []*v1.Node
		for _, o := range store.List() {
			list = append(list, o.(*v1.Node))
		}
		tell(list)
	}
}

// trimPodNode leaves what a pod network reads.
func trimPodNode(n *v1.Node) {
	annotations := n.Annotations
	trimMeta(&n.ObjectMeta)
	n.Annotations = annotations
	n.TypeMeta = metav1.TypeMeta{}
	n.Spec = v1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs}
	var network []v1.NodeCondition
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeNetworkUnavailable {
			network = append(network, c)
		}
	}
	n.Status = v1.NodeStatus{Addresses: n.Status.Addresses, Conditions: network}
}

// AnnotateNode sets annotations of a Node by way of its status, which a node agent
// may be allowed to change without the rest.
func (c *Client) AnnotateNode(ctx context.Context, name string, annotations map[string]string) error {
	return c.patchNodeStatus(ctx, name, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// NetworkIsUp sets the condition NetworkUnavailable of a Node to False, so that
// pods are scheduled on it.
func (c *Client) NetworkIsUp(ctx context.Context, name, reason, message string) error {
	now := metav1.NewTime(time.Now())
	condition := v1.NodeCondition{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
	return c.patchNodeStatus(ctx, name, map[string]any{"status": map[string]any{"conditions": []v1.NodeCondition{condition}}})
}

// patchNodeStatus patches status, which is a subresource with rights of its own.
func (c *Client) patchNodeStatus(ctx context.Context, name string, patch any) error {
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("apiserver: patch of node %s: %w", name, err)
	}
	err = c.core.Patch(types.StrategicMergePatchType).Resource("nodes").Name(name).SubResource("status").Body(text).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("apiserver: patch status of node %s: %w", name, err)
	}
	return nil
}
