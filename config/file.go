package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"portolan/internal/readfile"
)

const (
	apiVersion = "kubeproxy.config.k8s.io/v1alpha1"
	kind       = "KubeProxyConfiguration"
)

// file is what a configuration file holds for us.
type file struct {
	data     []byte
	proxy    *kubeproxy.KubeProxyConfiguration // with defaults
	options  ProxyOptions
	warnings []string // fields that mean nothing, with their line
}

// mostOfFile bounds what is read into memory; an API server holds 3 MiB of a ConfigMap at most.
const mostOfFile = 16 << 20

// read returns what a file holds. Documents of other kinds, such as kubeadm's,
// are passed over. With strict, what would be a warning is an error.
func read(path string, strict bool) (file, error) {
	text, err := readfile.AtMost(path, mostOfFile)
	if err != nil {
		return file{}, fmt.Errorf("config: %w", err)
	}
	data := []byte(text)
	f, err := parse(data)
	if err != nil {
		return file{}, fmt.Errorf("config: %s: %w", path, err)
	}
	for i, w := range f.warnings {
		f.warnings[i] = path + ": " + w
	}
	if strict && len(f.warnings) > 0 {
		return file{}, fmt.Errorf("config: strict: %s", strings.Join(f.warnings, "; "))
	}
	return f, nil
}

// parse reads the documents of a file. One of each kind counts; other kinds, such as
// kubeadm's, are passed over.
func parse(data []byte) (file, error) {
	f := file{data: data}
	haveOptions, inConfigMap := false, false
	for _, raw := range documents(data) {
		text, err := yaml.YAMLToJSON(raw)
		if err != nil {
			return file{}, err
		}
		var meta metav1.TypeMeta
		if json.UnmarshalCaseSensitivePreserveInts(text, &meta) != nil {
			return file{}, fmt.Errorf("line %d: is not a configuration: it must begin with apiVersion: %s and kind: %s", firstLine(raw), apiVersion, kind)
		}
		switch meta.Kind {
		case kind:
			if f.proxy != nil {
				f.warn(raw, "a second document of kind %s is not used", kind)
				continue
			}
			f.proxy = &kubeproxy.KubeProxyConfiguration{}
			err = f.decode(raw, meta, apiVersion, f.proxy)
		case optionsKind:
			if haveOptions {
				f.warn(raw, "a second document of kind %s is not used", optionsKind)
				continue
			}
			haveOptions = true
			err = f.decode(raw, meta, optionsVersion, &f.options)
		case "ConfigMap":
			inConfigMap = true
		}
		if err != nil {
			return file{}, err
		}
	}
	if f.proxy == nil && !haveOptions && inConfigMap {
		return file{}, fmt.Errorf("it is a ConfigMap, not the %s in it: write the value of its key, in kubeadm's config.conf, to a file", kind)
	}
	if f.proxy == nil && !haveOptions {
		return file{}, fmt.Errorf("no document of apiVersion %s and kind %s", apiVersion, kind)
	}
	if f.proxy == nil {
		f.proxy = &kubeproxy.KubeProxyConfiguration{}
	}
	f.warnings = append(f.warnings, ignoredFields(f.proxy)...)
	SetDefaults(f.proxy)
	return f, nil
}

// decode reads one document. As in kube-proxy names of fields are
// case-sensitive, types are exact, and null is "not given".
func (f *file) decode(raw []byte, meta metav1.TypeMeta, version string, into any) error {
	if meta.APIVersion != version {
		return fmt.Errorf("apiVersion %q of kind %s is not known; %s is", meta.APIVersion, meta.Kind, version)
	}
	f.warnings = append(f.warnings, strangeFields(raw, into)...)
	text, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return err
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(text, into); err != nil {
		if unfit := unfitFields(raw, into, meta.Kind); len(unfit) > 0 {
			return errors.New(strings.Join(unfit, "; "))
		}
		return fmt.Errorf("%s: %w", meta.Kind, err)
	}
	return nil
}

func (f *file) warn(raw []byte, format string, args ...any) {
	f.warnings = append(f.warnings, fmt.Sprintf("line %d: %s", firstLine(raw), fmt.Sprintf(format, args...)))
}

// firstLine is the line of the file where a document of it begins.
func firstLine(raw []byte) int { return 1 + len(raw) - len(bytes.TrimLeft(raw, "\n")) }

// documents splits a YAML stream. Each part begins with as many empty lines as
// stand before it in the stream, so that every line number is that of the file.
func documents(data []byte) [][]byte {
	var out [][]byte
	var doc []byte
	lines := bytes.SplitAfter(data, []byte("\n"))
	flush := func(next int) {
		if len(bytes.TrimSpace(doc)) > 0 {
			out = append(out, doc)
		}
		doc = bytes.Repeat([]byte("\n"), next)
	}
	for i, line := range lines {
		if rest, found := bytes.CutPrefix(line, []byte("---")); found && len(bytes.TrimSpace(rest)) == 0 {
			flush(i + 1)
			continue
		}
		doc = append(doc, line...)
	}
	flush(0)
	return out
}

// ignoredFields says which fields are set but mean nothing on Linux.
func ignoredFields(c *kubeproxy.KubeProxyConfiguration) []string {
	var out []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"winkernel", c.Winkernel != kubeproxy.KubeProxyWinkernelConfiguration{}},
		{"windowsRunAsService", c.WindowsRunAsService},
		{"portRange", c.PortRange != ""},
	} {
		if f.set {
			out = append(out, f.name+" is not used on Linux and changes nothing")
		}
	}
	return out
}
