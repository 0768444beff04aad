package manifests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan/service"
	"portolan/source/kube"
)

func svcYAML(name, ip string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default}\nspec:\n  clusterIP: %s\n  ports: [{port: 80}]\n", name, ip)
}

func sliceYAML(name, svc, ip string) string {
	return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, namespace: default, labels: {kubernetes.io/service-name: %s}}\naddressType: IPv4\nports: [{name: \"\", port: 8080}]\nendpoints: [{addresses: [%s]}]\n", name, svc, ip)
}

// state is the folder under test and what the Source makes of it.
type state struct {
	t      *testing.T
	dir    string
	source *Source
}

func newState(t *testing.T) *state {
	dir := t.TempDir()
	return &state{t, dir, New([]string{dir}, kube.NewCluster(kube.Settings{NodeName: "a"}))}
}

func (s *state) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	// The stamp must differ even on a coarse clock.
	s.source.files[filepath.Join(s.dir, name)] = forgetStamp(s.source.files[filepath.Join(s.dir, name)])
	if s.source.files[filepath.Join(s.dir, name)] == nil {
		delete(s.source.files, filepath.Join(s.dir, name))
	}
}

func forgetStamp(f *file) *file {
	if f == nil {
		return nil
	}
	c := *f
	c.stamp = stamp{}
	return &c
}

func (s *state) expect(want string, problems ...string) {
	s.t.Helper()
	snapshot, got := s.source.Load(context.Background())
	var list []string
	for svc := range snapshot.All() {
		text := svc.Name.Name + "=" + svc.ClusterIPs[0].String()
		for _, e := range svc.Ports[0].Endpoints {
			text += ">" + e.Addr.Addr().String()
		}
		list = append(list, text)
	}
	slices.Sort(list)
	if all := strings.Join(list, " "); all != want {
		s.t.Errorf("Services %q, want %q", all, want)
	}
	if len(got) != len(problems) {
		s.t.Fatalf("problems %v, want %d", got, len(problems))
	}
	for i, p := range problems {
		if text := got[i].Error(); !strings.Contains(text, p) {
			s.t.Errorf("problem %q does not contain %q", text, p)
		}
	}
}

// YAML and JSON, several documents in a file, and lists.
func TestFormats(t *testing.T) {
	s := newState(t)
	s.write("a.yaml", "# comment\n---\n"+svcYAML("one", "10.96.0.1")+"---\n---\n"+sliceYAML("one-x", "one", "10.0.0.1"))
	s.write("b.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"two"},"spec":{"clusterIP":"10.96.0.2","ports":[{"port":80}]}}`)
	s.write("c.yml", "apiVersion: v1\nkind: List\nitems:\n- "+strings.ReplaceAll(svcYAML("three", "10.96.0.3"), "\n", "\n  ")+"\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: x}}\n")
	s.write("d.json", `{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"four"},"spec":{"clusterIP":"10.96.0.4","ports":[{"port":80}]}}]}`)
	s.write("notes.txt", "not read")
	s.write(".hidden.yaml", "{{{")
	s.expect("four=10.96.0.4 one=10.96.0.1>10.0.0.1 three=10.96.0.3 two=10.96.0.2")
}

func TestBadInputKeepsWhatWasKnown(t *testing.T) {
	s := newState(t)
	s.write("a.yaml", svcYAML("one", "10.96.0.1")+"---\n"+svcYAML("two", "10.96.0.2"))
	s.expect("one=10.96.0.1 two=10.96.0.2")

	// A field that is wrong: this object stays, its neighbour moves on.
	s.write("a.yaml", svcYAML("one", "10.96.0.11")+"---\n"+svcYAML("two", "10.96.0.999"))
	s.expect("one=10.96.0.11 two=10.96.0.2", "a.yaml: document 2: Service default/two: spec.clusterIP: Invalid value: \"10.96.0.999\"")

	// A document that cannot even be read: nothing that is missing goes.
	s.write("a.yaml", svcYAML("one", "10.96.0.12")+"---\nkind: Service\nmetadata: {name: tw")
	s.expect("one=10.96.0.12 two=10.96.0.2", "a.yaml: document 2: ")

	s.write("a.yaml", svcYAML("one", "10.96.0.12")+"---\n42\n")
	s.expect("one=10.96.0.12 two=10.96.0.2", "a.yaml: document 2: not a Kubernetes object: is a number, must be a group of fields")

	// A type that is wrong.
	s.write("a.yaml", svcYAML("one", "10.96.0.12")+"---\n"+strings.Replace(svcYAML("two", "10.96.0.2"), "port: 80", "port: many", 1))
	s.expect("one=10.96.0.12 two=10.96.0.2", "a.yaml: document 2: Service default/two: spec.ports.port: is text, must be a whole number of 32 bits")

	// Well formed and without it: it goes.
	s.write("a.yaml", svcYAML("one", "10.96.0.12"))
	s.expect("one=10.96.0.12")

	s.write("a.yaml", strings.Replace(svcYAML("one", "10.96.0.12"), "spec:\n", "spec:\n  clusterIp: 10.0.0.1\n", 1))
	s.expect("one=10.96.0.12", "unknown field \"spec.clusterIp\"")
}

// TestPathIsNamedOnce: in what the system says of it.
func TestPathIsNamedOnce(t *testing.T) {
	_, problems := New([]string{"/nowhere/a"}, kube.NewCluster(kube.Settings{})).Load(t.Context())
	if len(problems) != 1 || problems[0].Error() != "/nowhere/a: no such file or directory" {
		t.Errorf("%v", problems)
	}
}

// TestPortWithoutName: as an API server fills it in.
func TestPortWithoutName(t *testing.T) {
	s := newState(t)
	s.write("a.yaml", svcYAML("one", "10.96.0.1")+"---\n"+strings.Replace(sliceYAML("one-1", "one", "10.244.0.1"), `name: "", `, "", 1))
	snapshot, problems := s.source.Load(t.Context())
	svc := snapshot.Service(service.Name{Namespace: "default", Name: "one"})
	if len(problems) > 0 || len(svc.Ports) != 1 || len(svc.Ports[0].Endpoints) != 1 {
		t.Errorf("%v %+v", problems, svc)
	}
}

// TestOwnNodeMissing: where there are Nodes, the own one should be among them.
func TestOwnNodeMissing(t *testing.T) {
	s := newState(t)
	node := func(names ...string) string {
		var b strings.Builder
		for _, n := range names {
			fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Node\nmetadata: {name: %s}\n", n)
		}
		return b.String()
	}
	expect := func(want string) {
		t.Helper()
		_, problems := s.source.Load(t.Context())
		if want == "" && len(problems) > 0 || want != "" && (len(problems) != 1 || !problems[0].Warning || !strings.Contains(problems[0].Error(), want)) {
			t.Errorf("%v, want %q", problems, want)
		}
	}
	s.write("nodes.yaml", svcYAML("one", "10.96.0.1"))
	expect("")
	s.write("nodes.yaml", node("b", "e", "c", "f", "d"))
	expect("Node a: is none of the Nodes here (b, c, d and 2 more): ")
	s.write("nodes.yaml", node("b", "a"))
	expect("")
}

func TestServiceCIDR(t *testing.T) {
	s := newState(t)
	const cidr = "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: kubernetes}\nspec: {cidrs: [%s]}\n"
	known := func() string {
		snapshot, _ := s.source.Load(context.Background())
		return fmt.Sprint(snapshot.Node.ServiceCIDRs)
	}
	s.write("a.yaml", fmt.Sprintf(cidr, "10.96.0.0/12"))
	s.expect("")
	s.write("a.yaml", fmt.Sprintf(cidr, "10.96.0.0/33"))
	s.expect("", "a.yaml: document 1: ServiceCIDR kubernetes: spec.cidrs[0]: Invalid value")
	if got := known(); got != "[10.96.0.0/12]" {
		t.Errorf("after a bad one: %s", got)
	}
	s.write("a.yaml", strings.Replace(fmt.Sprintf(cidr, "10.97.0.0/16"), "/v1", "/v1beta1", 1))
	s.expect("", "apiVersion networking.k8s.io/v1 and kind ServiceCIDR are")
	if got := known(); got != "[]" {
		t.Errorf("after it went: %s", got)
	}
}

func TestTwoFilesWithOneObject(t *testing.T) {
	s := newState(t)
	s.write("b.yaml", svcYAML("one", "10.96.0.2"))
	s.write("a.yaml", svcYAML("one", "10.96.0.1"))
	s.expect("one=10.96.0.1", "a.yaml has this object already")
	if err := os.Remove(filepath.Join(s.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	s.expect("one=10.96.0.2")
}

func TestSliceMovesToAnotherService(t *testing.T) {
	s := newState(t)
	s.write("a.yaml", svcYAML("one", "10.96.0.1")+"---\n"+svcYAML("two", "10.96.0.2"))
	s.write("b.yaml", sliceYAML("x", "one", "10.0.0.1"))
	s.expect("one=10.96.0.1>10.0.0.1 two=10.96.0.2")
	s.write("b.yaml", sliceYAML("x", "two", "10.0.0.1"))
	s.expect("one=10.96.0.1 two=10.96.0.2>10.0.0.1")
}

func TestMissingFolderKeepsItsObjects(t *testing.T) {
	for _, suffix := range []string{"", "/", "/."} {
		t.Run(suffix, func(t *testing.T) { testMissingFolder(t, suffix) })
	}
}

func testMissingFolder(t *testing.T, suffix string) {
	s := newState(t)
	s.source = New([]string{s.dir + suffix}, kube.NewCluster(kube.Settings{NodeName: "a"}))
	s.write("a.yaml", svcYAML("one", "10.96.0.1"))
	s.expect("one=10.96.0.1")
	moved := s.dir + ".moved"
	if err := os.Rename(s.dir, moved); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(moved)
	s.expect("one=10.96.0.1", "no such file or directory")
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.write("a.yaml", svcYAML("two", "10.96.0.2"))
	s.expect("two=10.96.0.2")
}

// An edit of one object leaves the others the same values, and a change that
// means nothing to the proxy leaves the Snapshot as it is.
func TestOnlyWhatChangedIsNew(t *testing.T) {
	s := newState(t)
	s.write("a.yaml", svcYAML("one", "10.96.0.1")+"---\n"+svcYAML("two", "10.96.0.2"))
	first, _ := s.source.Load(context.Background())
	s.write("a.yaml", svcYAML("one", "10.96.0.1")+"---\n"+svcYAML("two", "10.96.0.3"))
	second, _ := s.source.Load(context.Background())
	one, two := service.Name{Namespace: "default", Name: "one"}, service.Name{Namespace: "default", Name: "two"}
	if first.Service(one) != second.Service(one) || first.Service(two) == second.Service(two) {
		t.Error("the wrong Services are new")
	}
	s.write("a.yaml", "# a comment\n"+strings.Replace(svcYAML("one", "10.96.0.1"), "name: one", "name: one, annotations: {a: b}", 1)+"---\n"+svcYAML("two", "10.96.0.3"))
	if third, _ := s.source.Load(context.Background()); third != second {
		t.Error("an annotation made a new Snapshot")
	}
}

// Before every path has been there, nothing may be concluded from what is not.
func TestNothingIsToldBeforeEveryPathWasThere(t *testing.T) {
	s := newState(t)
	s.write("a.yaml", svcYAML("one", "10.96.0.1"))
	later := filepath.Join(t.TempDir(), "later")
	s.source = New([]string{s.dir, later}, kube.NewCluster(kube.Settings{}))
	ctx, cancel := context.WithCancel(context.Background())
	told := make(chan int, 100)
	done := make(chan error)
	go func() {
		done <- s.source.Watch(ctx, nil, func(snapshot *service.Snapshot, problems []Problem) {
			if snapshot == nil && len(problems) > 0 {
				told <- -1
			} else {
				told <- snapshot.Len()
			}
		})
	}()
	if n := <-told; n != -1 {
		t.Errorf("told of %d Services", n)
	}
	if err := os.Mkdir(later, 0o755); err != nil {
		t.Fatal(err)
	}
	for n := range told {
		if n == 1 {
			break
		}
	}
	cancel()
	<-done
}

// A file that is being written anew, and a folder that is being filled anew,
// keep what they said for a moment.
func TestUnfinishedKeepsWhatWasKnown(t *testing.T) {
	s := newState(t)
	s.write("a.yaml", svcYAML("one", "10.96.0.1"))
	s.expect("one=10.96.0.1")
	s.write("a.yaml", "")
	s.expect("one=10.96.0.1")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(s.dir, "a.yaml"), old, old); err != nil {
		t.Fatal(err)
	}
	s.expect("")

	s.write("a.yaml", svcYAML("one", "10.96.0.1"))
	s.expect("one=10.96.0.1")
	moved := s.dir + ".moved"
	if err := errors.Join(os.Rename(s.dir, moved), os.Mkdir(s.dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(moved)
	s.expect("one=10.96.0.1")
	if err := os.Chtimes(s.dir, old, old); err != nil {
		t.Fatal(err)
	}
	s.expect("")
}

func TestWhatIsNotReadIsSaid(t *testing.T) {
	s := newState(t)
	s.write("a.json", `{"apiVersion":"v1","kind":"service","metadata":{"name":"one"}} {"apiVersion":"v1","kind":"Service","metadata":{"name":"two"},"spec":{"clusterIP":"10.96.0.2","ports":[{"port":80}]}}`)
	s.write("b.yaml", "{apiVersion: v1, kind: Endpoints, metadata: {name: one}}\n---\n{apiVersion: discovery.k8s.io/v1beta1, kind: EndpointSlice, metadata: {name: \"a\\nb\"}}\n")
	if err := os.Mkdir(filepath.Join(s.dir, "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.expect("two=10.96.0.2", "not entered", `kind "service" are not read`, "kind Endpoints is not read", `a\nb: apiVersion "discovery.k8s.io/v1beta1"`)
}

// Changes are seen as they happen: plain writes, an editor's rename, a folder
// that is deleted and made anew.
func TestWatch(t *testing.T) {
	s := newState(t)
	s.write("a.yaml", svcYAML("one", "10.96.0.1"))
	ctx, cancel := context.WithCancel(context.Background())
	snapshots := make(chan *service.Snapshot, 100)
	done := make(chan error)
	go func() {
		done <- s.source.Watch(ctx, nil, func(snapshot *service.Snapshot, _ []Problem) { snapshots <- snapshot })
	}()
	await := func(what, ip string) {
		t.Helper()
		deadline := time.After(20 * time.Second)
		for {
			select {
			case snapshot := <-snapshots:
				svc := snapshot.Service(service.Name{Namespace: "default", Name: "one"})
				if svc != nil && svc.ClusterIPs[0].String() == ip {
					return
				}
			case <-deadline:
				t.Fatalf("%s: %s was not seen", what, ip)
			}
		}
	}
	put := func(name, ip string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(svcYAML("one", ip)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	await("start", "10.96.0.1")
	put("a.yaml", "10.96.0.2")
	await("write", "10.96.0.2")
	put(".a.yaml.swp", "10.96.0.3")
	if err := os.Rename(filepath.Join(s.dir, ".a.yaml.swp"), filepath.Join(s.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	await("atomic save", "10.96.0.3")
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put("b.yaml", "10.96.0.4")
	await("folder made anew", "10.96.0.4")
	cancel()
	if err := <-done; err != context.Canceled {
		t.Errorf("Watch returned %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(svcYAML("one", "10.96.0.1") + "---\n" + sliceYAML("x", "one", "10.0.0.1")))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"}},null,7]}`))
	f.Add([]byte("apiVersion: v1\nkind: ServiceList\nitems: [{metadata: {name: x}}]\n"))
	f.Add([]byte("--- \n- a\n---\nkind: Service\nmetadata: {name: tw"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := parse("f.yaml", data)
		cluster := kube.NewCluster(kube.Settings{})
		s := New(nil, cluster)
		s.files["f.yaml"] = merge(nil, c, stamp{})
		s.publish()
		for svc := range cluster.Snapshot().All() {
			if strings.ContainsAny(svc.Name.String(), "\n\" ") {
				t.Errorf("name %q got through", svc.Name)
			}
		}
	})
}
