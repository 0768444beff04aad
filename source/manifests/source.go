package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"

	"portolan/service"
	"portolan/source/kube"
)

// Source keeps a kube.Cluster at what files and folders say. It is not safe for
// use by several goroutines.
type Source struct {
	paths   []string
	cluster *kube.Cluster
	files   map[string]*file
	inForce map[ref]any // what the Cluster was told last

	problems []Problem         // of the files as they are, and of publishing them
	folders  map[string]uint64 // the inode that a folder had last
	// complete: every path has been there once, and it was not so that all they have
	// cannot be read. Before that a Snapshot must not be taken for all that there is:
	// what it lacks may be in force on this node.
	complete bool
}

// file is one file as it was last read.
type file struct {
	stamp    stamp
	objects  map[ref]any
	damaged  bool // see content
	problems []Problem
}

// stamp tells whether a file may have changed.
type stamp struct {
	modified time.Time
	size     int64
	inode    uint64
}

// New returns a Source that reads the given files and folders into cluster.
func New(paths []string, cluster *kube.Cluster) *Source {
	clean := make([]string, len(paths))
	for i, p := range paths {
		clean[i] = filepath.Clean(p)
	}
	return &Source{
		paths:   clean,
		cluster: cluster,
		files:   map[string]*file{},
		inForce: map[ref]any{},
		folders: map[string]uint64{},
	}
}

// Load reads what changed since the last Load and returns the Snapshot with all
// problems that are there now. A path that has gone keeps what it said.
func (s *Source) Load(ctx context.Context) (*service.Snapshot, []Problem) {
	var problems []Problem
	present := map[string]bool{}
	changed, missing, unread := false, false, false
	for _, path := range s.paths {
		names, warnings, err := list(path)
		problems = append(problems, warnings...)
		if err != nil {
			problems = append(problems, Problem{File: path, Err: err})
			s.keep(path, present)
			missing = true
			continue
		}
		if s.beingFilled(path) && len(names) == 0 {
			s.keep(path, present)
		}
		for _, name := range names {
			present[name] = true
			read, err := s.read(name)
			if err != nil {
				problems = append(problems, Problem{File: name, Err: err})
				unread = true
			}
			changed = changed || read
			if ctx.Err() != nil {
				return s.cluster.Snapshot(), append(problems, Problem{File: name, Err: ctx.Err()})
			}
		}
	}
	before := len(s.files)
	maps.DeleteFunc(s.files, func(name string, _ *file) bool { return !present[name] })
	if changed || len(s.files) != before {
		s.problems = s.publish()
	}
	s.complete = s.complete || !missing && !s.nothingReadable(unread)
	return s.cluster.Snapshot(), slices.Concat(problems, s.problems, s.strangers())
}

// nothingReadable tells whether there are documents, and not one gave an object: a
// file that was cut off says no more than one that is not there.
func (s *Source) nothingReadable(unread bool) bool {
	for _, f := range s.files {
		if len(f.objects) > 0 {
			return false
		}
		unread = unread || f.damaged
	}
	return unread
}

// strangers warns where Nodes are known and the one that we work for is not.
func (s *Source) strangers() []Problem {
	name, others := s.cluster.Missed()
	if len(others) == 0 {
		return nil
	}
	return []Problem{{File: strings.Join(s.paths, ", "), Object: kindNode + " " + name, Warning: true,
		Err: fmt.Errorf("is none of the Nodes here (%s): only endpoints with that nodeName count as local, and zone, addresses and pod networks are not known; give the name of one with --hostname-override", some(others))}}
}

// some are the names of a few.
func some(names []string) string {
	const few = 3
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}

// keep marks the files of a path that cannot be listed as still there.
func (s *Source) keep(path string, present map[string]bool) {
	for name := range s.files {
		if name == path || strings.HasPrefix(name, path+string(filepath.Separator)) {
			present[name] = true
		}
	}
}

// unfinished is how long an empty file, or an empty folder that has taken the
// place of another one, is taken for one that somebody is about to fill.
const unfinished = 2 * time.Second

// beingFilled tells whether an empty folder is another one than before, and new.
func (s *Source) beingFilled(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	now := stampOf(info)
	if before, known := s.folders[path]; known && before != now.inode && time.Since(now.modified) < unfinished {
		return true
	}
	s.folders[path] = now.inode
	return false
}

// list returns the manifest files of a path: itself, or those directly in a
// folder that end in .yaml, .yml or .json and are not hidden. Folders in a
// folder are named in a warning, as they are not entered.
func list(path string) (names []string, warnings []Problem, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		hidden := strings.HasPrefix(e.Name(), ".")
		switch ext := filepath.Ext(e.Name()); {
		case hidden:
		case e.IsDir():
			warnings = append(warnings, Problem{File: name, Warning: true, Err: errors.New("a folder in a folder is not entered")})
		case ext == ".yaml" || ext == ".yml" || ext == ".json":
			names = append(names, name)
		}
	}
	return names, warnings, nil
}

// maxFileSize bounds what is read into memory: 45,000 Services with their
// slices are about 100 MB of YAML.
const maxFileSize = 512 << 20

// read tells whether it read the file, which it does when it may have changed.
func (s *Source) read(name string) (bool, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) && s.files[name] == nil {
		return false, nil // listed a moment ago, gone now
	}
	if err != nil {
		return false, err
	}
	switch {
	case !info.Mode().IsRegular():
		return false, errors.New("not a regular file")
	case info.Size() > maxFileSize:
		return false, fmt.Errorf("%d bytes are more than the %d that are read", info.Size(), maxFileSize)
	}
	now := stampOf(info)
	old := s.files[name]
	if old != nil && (old.stamp == now || now.size == 0 && time.Since(now.modified) < unfinished) {
		return false, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return false, err
	}
	s.files[name] = merge(old, parse(name, data), now)
	return true, nil
}

// merge takes over what a file says now. An object that says the same as before
// stays the same value, so that only what changed is converted again. One whose
// text was refused keeps its last good version, and so does one that is missing
// while some document could not be read at all: it may be that one.
func merge(old *file, c content, now stamp) *file {
	next := &file{stamp: now, objects: c.objects, damaged: c.damaged, problems: c.problems}
	if old == nil {
		return next
	}
	for r, object := range old.objects {
		now := next.objects[r]
		if now == nil && (c.refused[r] || c.damaged) || now != nil && reflect.DeepEqual(now, object) {
			next.objects[r] = object
		}
	}
	return next
}

// publish tells the Cluster what changed. Of two files with the same object the
// first by name counts.
func (s *Source) publish() []Problem {
	var problems []Problem
	want := map[ref]any{}
	owner := map[ref]string{}
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[name]
		problems = append(problems, f.problems...)
		for r, object := range f.objects {
			if first, taken := owner[r]; taken {
				problems = append(problems, Problem{File: name, Object: r.String(),
					Err: fmt.Errorf("%s has this object already; that one counts", first)})
				continue
			}
			want[r], owner[r] = object, name
		}
	}
	for r, object := range s.inForce {
		if want[r] != object {
			s.remove(r, object, want[r] == nil)
		}
	}
	for r, object := range want {
		if s.inForce[r] != object {
			s.put(object)
		}
	}
	s.inForce = want
	return problems
}

// put tells the cluster of an object that is new or different.
func (s *Source) put(object any) {
	switch o := object.(type) {
	case *v1.Service:
		s.cluster.PutService(kube.NewService(o))
	case *discovery.EndpointSlice:
		s.cluster.PutSlice(kube.NewSlice(o))
	case *v1.Node:
		s.cluster.PutNode(o)
	case *networking.ServiceCIDR:
		s.cluster.PutServiceCIDR(o)
	}
}

// Nodes returns the Nodes in force, by name. Nobody may change them.
func (s *Source) Nodes() []*v1.Node {
	var out []*v1.Node
	for _, object := range s.inForce {
		if n, is := object.(*v1.Node); is {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// remove takes an object back; gone is false when a newer one follows. A slice
// is always taken back first, as the newer one may belong to another Service.
func (s *Source) remove(r ref, object any, gone bool) {
	switch o := object.(type) {
	case *v1.Service:
		if gone {
			s.cluster.DeleteService(service.Name{Namespace: r.namespace, Name: r.name})
		}
	case *discovery.EndpointSlice:
		s.cluster.DeleteSlice(kube.OwnerOf(o), o.Name)
	case *v1.Node:
		if gone {
			s.cluster.DeleteNode(r.name)
		}
	case *networking.ServiceCIDR:
		if gone {
			s.cluster.DeleteServiceCIDR(r.name)
		}
	}
}
