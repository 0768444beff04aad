// Package config turns a KubeProxyConfiguration (v1alpha1) and kube-proxy's
// flags into one validated Config.
package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

const (
	apiVersion = "kubeproxy.config.k8s.io/v1alpha1"
	kind       = "KubeProxyConfiguration"
)

// Read returns the KubeProxyConfiguration in a file, with kube-proxy's
// defaults filled in. Documents of other kinds, such as kubeadm's, are passed
// over. Unknown and duplicate fields are warnings.
func Read(path string) (*kubeproxy.KubeProxyConfiguration, []string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("config: %w", err)
	}
	c, warnings, err := parse(data)
	if err != nil {
		return nil, nil, fmt.Errorf("config: %s: %w", path, err)
	}
	for i, w := range warnings {
		warnings[i] = path + ": " + w
	}
	return c, warnings, nil
}

func parse(data []byte) (*kubeproxy.KubeProxyConfiguration, []string, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		raw, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil, nil, fmt.Errorf("no document of apiVersion %s and kind %s", apiVersion, kind)
		}
		if err != nil {
			return nil, nil, err
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(raw, &meta); err != nil {
			return nil, nil, err
		}
		if meta.Kind != kind {
			continue
		}
		if meta.APIVersion != apiVersion {
			return nil, nil, fmt.Errorf("apiVersion %q of kind %s is not known; %s is", meta.APIVersion, kind, apiVersion)
		}
		return decode(raw)
	}
}

func decode(raw []byte) (*kubeproxy.KubeProxyConfiguration, []string, error) {
	c := &kubeproxy.KubeProxyConfiguration{}
	var warnings []string
	if strict := yaml.UnmarshalStrict(raw, c); strict != nil {
		c = &kubeproxy.KubeProxyConfiguration{}
		if err := yaml.Unmarshal(raw, c); err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, strings.ReplaceAll(strict.Error(), "\n", " "))
	}
	SetDefaults(c)
	return c, warnings, nil
}

// SetDefaults fills in kube-proxy 1.37's defaults; a period of zero counts as
// not given. Only the least time between two writes of nftables mode is not
// kube-proxy's: a write costs what changed there, so that waiting saves nothing.
func SetDefaults(c *kubeproxy.KubeProxyConfiguration) {
	setDefault(&c.BindAddress, "0.0.0.0")
	setDefault(&c.HealthzBindAddress, "0.0.0.0:10256")
	setDefault(&c.MetricsBindAddress, "127.0.0.1:10249")
	setDefault(&c.DetectLocalMode, kubeproxy.LocalMode(DetectClusterCIDR))
	setDefault(&c.IPTables.SyncPeriod.Duration, 30*time.Second)
	setDefault(&c.IPTables.MinSyncPeriod.Duration, time.Second)
	setPointer(&c.IPTables.MasqueradeBit, 14)
	setPointer(&c.IPTables.LocalhostNodePorts, true)
	setDefault(&c.NFTables.SyncPeriod.Duration, 30*time.Second)
	setDefault(&c.NFTables.MinSyncPeriod.Duration, 10*time.Millisecond)
	setPointer(&c.NFTables.MasqueradeBit, 14)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
