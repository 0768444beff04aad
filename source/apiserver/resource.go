package apiserver

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// resource is one kind of object, and which of them this node wants to know. The
// selectors are kube-proxy's.
type resource struct {
	client         rest.Interface
	group, name    string // as a ClusterRole names them
	labels, fields string // selectors
	object         runtime.Object
	list           func() runtime.Object
	trim           func(runtime.Object) // nil where the store keeps another form
	// without says what is different where the API server does not have the
	// resource, or does not allow it; empty where the proxy cannot do without.
	without string
}

func (c *Client) services() resource {
	return resource{
		client: c.core, name: "services",
		labels: "!" + labelProxyName,
		fields: fields.OneTermNotEqualSelector("spec.clusterIP", v1.ClusterIPNone).String(),
		object: &v1.Service{},
		list:   func() runtime.Object { return &v1.ServiceList{} },
	}
}

func (c *Client) endpointSlices() resource {
	return resource{
		client: c.discovery, group: discovery.GroupName, name: "endpointslices",
		labels: "!" + v1.IsHeadlessService,
		object: &discovery.EndpointSlice{},
		list:   func() runtime.Object { return &discovery.EndpointSliceList{} },
	}
}

func (c *Client) node(name string) resource {
	return resource{
		client: c.core, name: "nodes",
		fields: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
		object: &v1.Node{},
		list:   func() runtime.Object { return &v1.NodeList{} },
		trim:   func(o runtime.Object) { trimNode(o.(*v1.Node)) },
	}
}

func (c *Client) serviceCIDRs() resource {
	return resource{
		client: c.networking, group: networking.GroupName, name: "servicecidrs",
		object:  &networking.ServiceCIDR{},
		list:    func() runtime.Object { return &networking.ServiceCIDRList{} },
		trim:    func(o runtime.Object) { trimServiceCIDR(o.(*networking.ServiceCIDR)) },
		without: "packets to cluster IPs that no Service has leave this node as any others",
	}
}

// listWatch asks the API server; what it answers is trimmed before anybody keeps
// it, and how it went is told to report.
func (r resource) listWatch(report func(verb string, err error)) *cache.ListWatch {
	request := func(o metav1.ListOptions) *rest.Request {
		o.LabelSelector, o.FieldSelector = r.labels, r.fields
		return r.client.Get().Resource(r.name).VersionedParams(&o, metav1.ParameterCodec)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := r.list()
			err := request(o).Do(ctx).Into(list)
			if err == nil {
				err = truthful(list)
			}
			report("list", err)
			if err == nil && r.trim != nil {
				r.trimList(list)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := request(o).Watch(ctx)
			report("watch", err)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				switch e.Type {
				case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
					if reflect.TypeOf(e.Object) != reflect.TypeOf(r.object) {
						err := apierrors.NewInternalError(fmt.Errorf("%T among %s", e.Object, r.name))
						report("event", err)
						return watch.Event{Type: watch.Error, Object: &err.ErrStatus}, true
					}
					if e.Type != watch.Bookmark && r.trim != nil {
						r.trim(e.Object)
					}
					report("event", nil)
				}
				return e, true
			}), nil
		},
	}
}

// truthful tells a list from what something between us and the API server says: an
// object without anything in it passes for an empty list, but every list is of some
// version.
func truthful(list runtime.Object) error {
	l, is := list.(metav1.ListInterface)
	if !is || l.GetResourceVersion() == "" {
		return errors.New("apiserver: the answer is no list of an API server: it has no resourceVersion")
	}
	return nil
}

// trimList trims the items of a list; of kinds without trim the store keeps another form.
func (r resource) trimList(list runtime.Object) {
	switch list := list.(type) {
	case *networking.ServiceCIDRList:
		for i := range list.Items {
			r.trim(&list.Items[i])
		}
	case *v1.NodeList:
		for i := range list.Items {
			r.trim(&list.Items[i])
		}
	}
}
