package config

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logs "k8s.io/component-base/logs/api/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

var update = flag.Bool("update", false, "write the parts of the chart's schema that follow from the types")

// schema is a JSON schema.
type schema = map[string]any

// The chart's schema knows every field of the configuration and of the options.
func TestSchemaKnowsEveryField(t *testing.T) {
	const file = "../deploy/chart/values.schema.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all schema
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	properties := all["properties"].(schema)
	want := schema{
		"config":  schemaOf(reflect.TypeFor[kubeproxy.KubeProxyConfiguration]()),
		"options": schemaOf(reflect.TypeFor[ProxyOptions]()),
	}
	fields := want["config"].(schema)["properties"].(schema)
	fields["mode"] = schema{"enum": []any{"", "iptables", "nftables", "ipvs"}}
	fields["detectLocalMode"] = schema{"enum": []any{"", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"}}
	if *update {
		properties["config"], properties["options"] = want["config"], want["options"]
		out, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(out, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for part, want := range want {
		if diff := cmp.Diff(want, properties[part]); diff != "" {
			t.Errorf("%s as the type says (-), in the schema (+); go test -update writes it:\n%s", part, diff)
		}
	}
}

// schemaOf tells what values of a type look like in YAML. Objects take no fields that
// they do not have.
func schemaOf(t reflect.Type) schema {
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return schema{"type": "string", "pattern": `^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0s?$`}
	case reflect.TypeFor[logs.TimeOrMetaDuration](), reflect.TypeFor[resource.QuantityValue]():
		return schema{"type": []any{"string", "integer"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32:
		return schema{"type": "integer"}
	case reflect.Float32:
		return schema{"type": "number"}
	case reflect.Slice:
		return schema{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		fields := schema{}
		addFields(fields, t)
		return schema{"type": "object", "properties": fields, "additionalProperties": false}
	}
	panic("schema of " + t.String())
}

func addFields(fields schema, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
			// The chart writes apiVersion and kind.
		case name == "" && (rest == "inline" || f.Anonymous):
			addFields(fields, f.Type)
		case name != "" && name != "-":
			fields[name] = schemaOf(f.Type)
		}
	}
}
