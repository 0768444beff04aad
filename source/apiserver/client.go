package apiserver

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
)

// Connection says how the API server is reached.
type Connection struct {
	// Kubeconfig is a file, Master a URL that counts before the file's. Without
	// both it is the API server of the cluster that this process runs in.
	Kubeconfig, Master string
	// ContentType and Accept are media types, protobuf when empty.
	ContentType, Accept string
	// QPS and Burst bound the requests a second; a QPS below zero is no bound, zero
	// the library's.
	QPS       float32
	Burst     int
	UserAgent string
}

const (
	protobuf = runtime.ContentTypeProtobuf
	// anyway is what an API server without protobuf for a type answers with.
	anyway = protobuf + "," + runtime.ContentTypeJSON
)

// Client reads from an API server. Its methods may be called from several
// goroutines.
type Client struct {
	core, events, discovery, networking rest.Interface
	// Host is the URL of the API server.
	Host string
}

// Connect prepares a Client. The API server is not asked anything yet; what is
// wrong with the files that say where it is, is an error.
func Connect(c Connection) (*Client, error) {
	read := rest.InClusterConfig
	if c.Kubeconfig != "" || c.Master != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags(c.Master, c.Kubeconfig) }
	}
	config, err := read()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("apiserver: %s: names no API server: its current-context must name a context, and that one a cluster with a server", c.place())
	case err != nil:
		return nil, fmt.Errorf("apiserver: %s: %w", c.place(), err)
	}
	config.UserAgent = c.UserAgent
	config.ContentType, config.AcceptContentTypes = c.ContentType, c.Accept
	if config.ContentType == "" {
		config.ContentType = protobuf
	}
	if config.AcceptContentTypes == "" && config.ContentType == protobuf {
		config.AcceptContentTypes = anyway
	}
	config.QPS, config.Burst = c.QPS, c.Burst
	if c.QPS > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, max(c.Burst, 1))
	}
	return newClient(config)
}

// place says where an address was looked for.
func (c Connection) place() string {
	switch {
	case c.Kubeconfig != "":
		return "kubeconfig " + c.Kubeconfig
	case c.Master != "":
		return "master " + c.Master
	}
	return "in-cluster configuration"
}

// newClient knows the groups that a proxy reads, and of networking one kind: every
// type of the API costs memory.
func newClient(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, discovery.AddToScheme, addServiceCIDRs} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("apiserver: types of the API: %w", err)
		}
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("apiserver: %s: %w", config.Host, err)
	}
	group := func(path string, version schema.GroupVersion, pace flowcontrol.RateLimiter) (rest.Interface, error) {
		own := *config
		if pace != nil {
			own.RateLimiter = pace
		}
		own.APIPath, own.GroupVersion = path, &version
		client, err := rest.RESTClientForConfigAndClient(&own, transport)
		if err != nil {
			return nil, fmt.Errorf("apiserver: %s: %w", config.Host, err)
		}
		return client, nil
	}
	out := &Client{Host: config.Host}
	if out.core, err = group("/api", v1.SchemeGroupVersion, nil); err != nil {
		return nil, err
	}
	// Events keep nobody waiting.
	if out.events, err = group("/api", v1.SchemeGroupVersion, flowcontrol.NewTokenBucketRateLimiter(eventQPS, eventBurst)); err != nil {
		return nil, err
	}
	if out.discovery, err = group("/apis", discovery.SchemeGroupVersion, nil); err != nil {
		return nil, err
	}
	out.networking, err = group("/apis", networking.SchemeGroupVersion, nil)
	return out, err
}

func addServiceCIDRs(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(networking.SchemeGroupVersion, &networking.ServiceCIDR{}, &networking.ServiceCIDRList{})
	metav1.AddToGroupVersion(scheme, networking.SchemeGroupVersion)
	return nil
}
