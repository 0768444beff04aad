package check

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// apiServer is the address that the base has for everybody to replace.
const apiServer = "https://control-plane.example:6443"

// object is a Kubernetes object as its manifest says it.
type object map[string]any

// at follows a path of keys and, in lists, of numbers; nil where there is nothing.
func (o object) at(path ...any) any {
	var v any = map[string]any(o)
	for _, step := range path {
		switch at := v.(type) {
		case map[string]any:
			v = at[step.(string)]
		case []any:
			if i := step.(int); i < len(at) {
				v = at[i]
			} else {
				v = nil
			}
		default:
			return nil
		}
	}
	return v
}

func (o object) kind() string { return fmt.Sprint(o["kind"]) }

// objects are the objects of manifests, by kind: there is one of each here.
type objects map[string]object

func parseObjects(t *testing.T, text string) objects {
	t.Helper()
	out := objects{}
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(o) == 0 {
			continue
		}
		if out[o.kind()] != nil {
			t.Fatalf("two objects are a %s", o.kind())
		}
		out[o.kind()] = o
	}
	return out
}

// renderChart renders deploy/chart as helm does: the values are laid over those of
// the chart and checked against its schema.
func renderChart(values map[string]any) (string, error) {
	c, err := loader.Load("../chart")
	if err != nil {
		return "", err
	}
	release := chartutil.ReleaseOptions{Name: "portolan", Namespace: "kube-system", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			fmt.Fprintf(&out, "%s\n---\n", files[name])
		}
	}
	return out.String(), nil
}

// chart is what the chart gives for values, beside the API server's address.
func chart(t *testing.T, values string) objects {
	t.Helper()
	text, err := renderChart(parseValues(t, values))
	if err != nil {
		t.Fatal(err)
	}
	return parseObjects(t, text)
}

func parseValues(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	if _, named := values["apiServer"]; !named {
		values["apiServer"] = apiServer
	}
	return values
}

// kustomized is what `kubectl kustomize FOLDER` prints.
func kustomized(t *testing.T, folder string) objects {
	t.Helper()
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	text, err := result.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parseObjects(t, string(text))
}

// read reads a file of YAML.
func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
