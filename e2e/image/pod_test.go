package image

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"portolan/lab"
)

// capabilities are those that the manifests may ask for, by their names there.
var capabilities = map[v1.Capability]int{"NET_ADMIN": unix.CAP_NET_ADMIN, "NET_RAW": unix.CAP_NET_RAW}

// daemonSet reads the DaemonSet of a folder of deploy/.
func daemonSet(t *testing.T, file string) apps.DaemonSet {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d apps.DaemonSet
	if err := yaml.UnmarshalStrict(text, &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

// podOf is what a kubelet makes of one container of the DaemonSet on a node; files
// are those of its ConfigMap.
func podOf(t *testing.T, pod v1.PodSpec, c v1.Container, node string, files map[string]string) container {
	t.Helper()
	security := c.SecurityContext
	if !pod.HostNetwork || security == nil || security.RunAsUser == nil || *security.RunAsUser != 0 {
		t.Fatal("the proxy is to be root in the node's network")
	}
	out := container{
		Root:       root,
		Args:       append([]string{"/usr/local/bin/portolan"}, c.Args...),
		Env:        []string{"PATH=/usr/local/bin:/usr/sbin"},
		ReadOnly:   security.ReadOnlyRootFilesystem != nil && *security.ReadOnlyRootFilesystem,
		NoNewPrivs: security.AllowPrivilegeEscalation != nil && !*security.AllowPrivilegeEscalation,
		Privileged: security.Privileged != nil && *security.Privileged,
	}
	for i, arg := range out.Args {
		out.Args[i] = strings.ReplaceAll(arg, "$(NODE_NAME)", node)
	}
	if list := security.Capabilities; list != nil {
		if len(list.Drop) != 1 || list.Drop[0] != "ALL" {
			t.Fatalf("dropped capabilities: %v", list.Drop)
		}
		for _, name := range list.Add {
			number, known := capabilities[name]
			if !known {
				t.Fatalf("nobody has said what capability %s is for", name)
			}
			out.Capabilities = append(out.Capabilities, number)
		}
	}
	for _, m := range c.VolumeMounts {
		out.Mounts = append(out.Mounts, mount{volume(t, pod, m.Name, files), m.MountPath, m.ReadOnly})
	}
	return out
}

// volume makes what a volume shows on a node of a lab.
func volume(t *testing.T, pod v1.PodSpec, name string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, v := range pod.Volumes {
		switch {
		case v.Name != name:
		case v.ConfigMap != nil:
			for file, text := range files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			return dir
		case v.HostPath != nil && *v.HostPath.Type == v1.HostPathDirectoryOrCreate:
			return dir
		case v.HostPath != nil && *v.HostPath.Type == v1.HostPathFileOrCreate:
			path := filepath.Join(dir, "file")
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	t.Fatalf("volume %q is none that a node of a lab has", name)
	return ""
}

// command starts a container in the network of a node.
func (c container) command(t *testing.T, node *lab.Node) *lab.Cmd {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "container.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := node.Command(context.WithoutCancel(t.Context()), lab.HostVariant, self, enterArg, file)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	return cmd
}

// rights are the capabilities that a process has and may ever get, whether it may gain
// others, and whether its system calls are filtered.
func rights(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		switch name {
		case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs":
			out = append(out, name+"="+strings.TrimLeft(value, "0"))
		}
	}
	return strings.Join(out, " ")
}
