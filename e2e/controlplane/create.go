package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// collections are the paths of the kinds that manifests of this project have; %s is
// the namespace.
var collections = map[string]string{
	"Namespace":          "/api/v1/namespaces",
	"Node":               "/api/v1/nodes",
	"Service":            "/api/v1/namespaces/%s/services",
	"EndpointSlice":      "/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices",
	"ConfigMap":          "/api/v1/namespaces/%s/configmaps",
	"ServiceAccount":     "/api/v1/namespaces/%s/serviceaccounts",
	"DaemonSet":          "/apis/apps/v1/namespaces/%s/daemonsets",
	"ClusterRole":        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
	"ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"Role":               "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles",
	"RoleBinding":        "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings",
}

// Create creates an object as its manifest says it, as the administrator. With try the
// server only checks it, every field.
func (s *Server) Create(ctx context.Context, object map[string]any, try bool) error {
	metadata, _ := object["metadata"].(map[string]any)
	kind, _ := object["kind"].(string)
	path, known := collections[kind]
	if !known {
		return fmt.Errorf("controlplane: create a %q: no kind that is known here", kind)
	}
	if strings.Contains(path, "%s") {
		namespace, named := metadata["namespace"].(string)
		if !named {
			namespace = "default"
		}
		path = fmt.Sprintf(path, url.PathEscape(namespace))
	}
	if try {
		path += "?dryRun=All&fieldValidation=Strict"
	}
	return s.Call(ctx, http.MethodPost, path, object, nil)
}

// Apply creates the objects of manifests, in order. It waits for namespaces that the
// server makes by itself.
func (s *Server) Apply(ctx context.Context, manifests string) error {
	for doc := range strings.SplitSeq("\n"+manifests, "\n---\n") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
			return fmt.Errorf("controlplane: manifest: %w", err)
		}
		if len(object) == 0 {
			continue
		}
		err := s.Create(ctx, object, false)
		for status := (StatusError{}); errors.As(err, &status) && status.Code == http.StatusNotFound; err = s.Create(ctx, object, false) {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
