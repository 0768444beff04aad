// Package manifests reads Services, EndpointSlices, ServiceCIDRs and Nodes from files,
// and follows the files as they change.
//
// A document that cannot be used is refused with a Problem that names file,
// document, object and field; everything else in the file still counts, and
// what was known of the refused object stays in force.
package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"unicode"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"portolan/source/kube"
)

// Kinds of objects that are read; documents of other kinds are passed over.
const (
	kindService = "Service"
	kindSlice   = "EndpointSlice"
	kindNode    = "Node"
	kindCIDR    = "ServiceCIDR"
)

// ref names an object.
type ref struct{ kind, namespace, name string }

func (r ref) String() string {
	if r.namespace == "" {
		return r.kind + " " + r.name
	}
	return r.kind + " " + r.namespace + "/" + r.name
}

// Problem is a document, or a part of one, that was refused, or a warning
// about one that is used all the same.
type Problem struct {
	File     string
	Document int // from 1; 0 when the whole file is meant
	Object   string
	Warning  bool
	Err      error
}

func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Document > 0 {
		fmt.Fprintf(&b, ": document %d", p.Document)
	}
	if p.Object != "" {
		b.WriteString(": " + p.Object)
	}
	err := p.Err
	if of := (*fs.PathError)(nil); errors.As(err, &of) && of.Path == p.File {
		err = of.Err // the name is said already
	}
	b.WriteString(": " + err.Error())
	return printable(b.String())
}

// printable escapes what would break a line of a log or move a terminal's
// cursor: names and values come from whoever wrote the file.
func printable(s string) string {
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

func (p Problem) Unwrap() error { return p.Err }

// content is what one file says. refused are the objects that it names but
// whose text could not be used; damaged tells that some document could not even
// be named, so that nothing may be concluded from an object's absence.
type content struct {
	objects  map[ref]any // *v1.Service, *discovery.EndpointSlice, *networking.ServiceCIDR or *v1.Node
	refused  map[ref]bool
	damaged  bool
	problems []Problem
}

// header is what every document begins with.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
}

func (h header) ref() ref {
	r := ref{h.Kind, h.Metadata.Namespace, h.Metadata.Name}
	switch {
	case r.kind == kindNode || r.kind == kindCIDR:
		r.namespace = ""
	case r.namespace == "":
		r.namespace = v1.NamespaceDefault
	}
	return r
}

// parse reads all documents of a file. It never fails as a whole.
func parse(file string, data []byte) content {
	c := content{objects: map[ref]any{}, refused: map[ref]bool{}}
	all := documentsOf(data)
	for document := 1; ; document++ {
		raw, err := all.next()
		if errors.Is(err, io.EOF) {
			return c
		}
		if err != nil {
			c.damage(Problem{File: file, Document: document, Err: err})
			return c
		}
		if t := bytes.TrimSpace(raw); len(t) > 0 && t[0] == '{' {
			c.json(file, document, t)
			continue
		}
		text, err := yaml.YAMLToJSONStrict(raw)
		if err != nil { // a duplicate key is a warning: the last one counts
			strict := err
			if text, err = yaml.YAMLToJSON(raw); err != nil {
				c.damage(Problem{File: file, Document: document, Err: all.ofFile(err)})
				continue
			}
			c.warn(Problem{File: file, Document: document, Object: nameOf(text)}, all.ofFile(strict))
		}
		c.document(file, document, text)
	}
}

// nameOf is what a document calls itself, as far as it does.
func nameOf(text []byte) string {
	var h header
	if json.Unmarshal(text, &h) != nil || h.Kind == "" || h.Metadata.Name == "" {
		return ""
	}
	return h.ref().String()
}

// json reads a document that is JSON, or several JSON values after each other.
// What begins like JSON and is not may still be YAML in braces.
func (c *content) json(file string, number int, text []byte) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			c.document(file, number, value)
			continue
		}
		asYAML, yamlErr := yaml.YAMLToJSON(text)
		if yamlErr != nil {
			c.damage(Problem{File: file, Document: number, Err: err})
			return
		}
		c.document(file, number, asYAML)
		return
	}
}

func (c *content) damage(p Problem) {
	c.damaged = true
	c.problems = append(c.problems, p)
}

// document reads one document, or one item of a List. Field names are case
// sensitive, as an API server takes them; unknown ones are warnings, since a
// mistyped field would otherwise be lost without a word.
func (c *content) document(file string, number int, text []byte) {
	if t := bytes.TrimSpace(text); len(t) == 0 || bytes.Equal(t, []byte("null")) {
		return
	}
	var h header
	if err := json.Unmarshal(text, &h); err != nil {
		c.damage(Problem{File: file, Document: number, Err: fmt.Errorf("not a Kubernetes object: %w", misfit(err, text, &header{}))})
		return
	}
	if strings.HasSuffix(h.Kind, "List") {
		c.list(file, number, h, text)
		return
	}
	object := newObject(h)
	if object == nil {
		if h.Kind == "" {
			c.damage(Problem{File: file, Document: number, Err: errors.New("field kind is missing")})
		}
		c.warn(Problem{File: file, Document: number, Object: h.ref().String()}, nearMiss(h))
		return
	}
	r := h.ref()
	problem := Problem{File: file, Document: number, Object: r.String()}
	unknown, err := kjson.UnmarshalStrict(text, object)
	if err != nil {
		c.refuse(r, problem, misfit(err, text, newObject(h)))
		return
	}
	if errs := validate(object, r); len(errs) > 0 {
		c.refuse(r, problem, errs.ToAggregate())
		return
	}
	if c.objects[r] != nil {
		c.refuse(r, problem, errors.New("the file has this object already; the first one counts"))
		return
	}
	c.objects[r] = object
	c.warn(problem, errors.Join(unknown...))
	if svc, ok := object.(*v1.Service); ok && svc.Spec.ClusterIP == "" && len(svc.Spec.ClusterIPs) == 0 &&
		svc.Spec.Type != v1.ServiceTypeExternalName {
		c.warn(problem, errors.New("spec.clusterIP: is empty, so there is nothing to program; manifests must carry the address that an API server would have allocated"))
	}
}

func (c *content) refuse(r ref, p Problem, err error) {
	c.refused[r] = true
	p.Err = err
	c.problems = append(c.problems, p)
}

func (c *content) warn(p Problem, err error) {
	if err != nil {
		p.Warning, p.Err = true, err
		c.problems = append(c.problems, p)
	}
}

// list reads the items of a v1.List, or of a list of one kind.
func (c *content) list(file string, number int, h header, text []byte) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		c.damage(Problem{File: file, Document: number, Object: h.Kind, Err: misfit(err, text, &list)})
		return
	}
	for _, item := range list.Items {
		c.document(file, number, withKind(item, h))
	}
}

// withKind gives the items of a typed list (ServiceList) the kind that the API
// leaves out there.
func withKind(item json.RawMessage, list header) []byte {
	var fields map[string]json.RawMessage
	kind := strings.TrimSuffix(list.Kind, "List")
	if kind == "" || json.Unmarshal(item, &fields) != nil || fields == nil || fields["kind"] != nil {
		return item
	}
	fields["kind"], _ = json.Marshal(kind)
	fields["apiVersion"], _ = json.Marshal(list.APIVersion)
	out, err := json.Marshal(fields)
	if err != nil {
		return item
	}
	return out
}

// newObject is an empty object of the kinds that are read, nil for others.
func newObject(h header) any {
	switch {
	case h.Kind == kindService && h.APIVersion == "v1":
		return &v1.Service{}
	case h.Kind == kindSlice && h.APIVersion == "discovery.k8s.io/v1":
		return &discovery.EndpointSlice{}
	case h.Kind == kindNode && h.APIVersion == "v1":
		return &v1.Node{}
	case h.Kind == kindCIDR && h.APIVersion == "networking.k8s.io/v1":
		return &networking.ServiceCIDR{}
	}
	return nil
}

// nearMiss says what was probably meant by an object that is not read, nil for
// kinds that have nothing to do with us.
func nearMiss(h header) error {
	if h.Kind == "Endpoints" {
		return errors.New("kind Endpoints is not read; endpoints come from EndpointSlices")
	}
	for kind, version := range map[string]string{kindService: "v1", kindSlice: "discovery.k8s.io/v1", kindNode: "v1", kindCIDR: "networking.k8s.io/v1"} {
		if strings.EqualFold(h.Kind, kind) {
			return fmt.Errorf("apiVersion %q and kind %q are not read; apiVersion %s and kind %s are", h.APIVersion, h.Kind, version, kind)
		}
	}
	return nil
}

// validate checks an object and fills in the namespace that kubectl would, and the
// empty name of a port of a slice that an API server would.
func validate(object any, r ref) field.ErrorList {
	switch o := object.(type) {
	case *v1.Service:
		o.Namespace = r.namespace
		return kube.ValidateService(o)
	case *discovery.EndpointSlice:
		o.Namespace = r.namespace
		for i := range o.Ports {
			if o.Ports[i].Name == nil {
				o.Ports[i].Name = new(string)
			}
		}
		return kube.ValidateSlice(o)
	case *v1.Node:
		return kube.ValidateNode(o)
	case *networking.ServiceCIDR:
		return kube.ValidateServiceCIDR(o)
	}
	panic(fmt.Sprintf("manifests: validate %T", object))
}
