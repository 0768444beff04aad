package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"portolan/service"
)

// eventServer keeps Events, and refuses with a status when told to.
type eventServer struct {
	refuse int
	lost   bool // it has forgotten all Events
	asked  []string
}

func (s *eventServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	if s.refuse != 0 {
		w.WriteHeader(s.refuse)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":"Forbidden","message":"no"}`, s.refuse)
		return
	}
	if r.Method == http.MethodPatch && s.lost {
		s.lost = false
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound"}`)
		return
	}
	var e struct {
		v1.Event
		Count int32 `json:"count"`
	}
	if err := json.Unmarshal(body, &e); err != nil {
		s.asked = append(s.asked, err.Error())
	}
	about := ""
	if r.Method == http.MethodPost {
		about = fmt.Sprintf(" %s %s/%s %s %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.InvolvedObject.UID, e.Type, e.Reason)
	}
	s.asked = append(s.asked, fmt.Sprintf("%s %s%s %q %d", r.Method, strings.Split(r.URL.Path, "/")[4], about, e.Message, e.Count))
	w.Write(body)
}

func (s *eventServer) took() []string {
	out := s.asked
	s.asked = nil
	return out
}

// uidOf knows every Service but those named "gone".
func uidOf(n service.Name) types.UID {
	if n.Name == "gone" {
		return ""
	}
	return types.UID("u-" + n.Name)
}

// What is told becomes one Event, which counts up while it is told again.
func TestEventsCountUp(t *testing.T) {
	server := &eventServer{}
	web := httptest.NewServer(server)
	defer web.Close()
	client, err := Connect(Connection{Master: web.URL, ContentType: runtime.ContentTypeJSON})
	if err != nil {
		t.Fatal(err)
	}
	log := &logText{}
	s := sourceOf(client, "", log)
	r := s.newRecorder()
	now := time.Unix(1000, 0)
	r.now = func() time.Time { return now }
	r.uid = uidOf
	name := func(n string) service.Name { return service.Name{Namespace: "ns", Name: n} }
	refused := Note{Service: name("web"), Warning: true, Reason: "ServiceRefused", Message: "no such match"}
	otherText := refused
	otherText.Message = "no such target"
	over := Note{Service: name("web"), Reason: "ServiceProgrammed", Message: "all is well"}
	long := Note{Reason: "SyncFailed", Warning: true, Message: strings.Repeat("ä", 1000)}

	for _, step := range []struct {
		what string
		wait time.Duration
		note Note
		want []string
	}{
		{"a Service is refused", 0, refused, []string{`POST ns Service ns/web u-web Warning ServiceRefused "no such match" 1`}},
		{"again", time.Second, refused, nil},
		{"with another text", time.Second, otherText, []string{`PATCH ns "no such target" 3`}},
		{"again, later", 2 * time.Minute, otherText, []string{`PATCH ns "no such target" 4`}},
		{"it is over", time.Second, over, []string{`POST ns Service ns/web u-web Normal ServiceProgrammed "all is well" 1`}},
		{"long after", time.Hour, refused, []string{`POST ns Service ns/web u-web Warning ServiceRefused "no such match" 1`}},
		{"the node", 0, Note{Reason: "Starting", Message: "hello"}, []string{`POST default Node /node1 node1 Normal Starting "hello" 1`}},
		{"a Service that is gone", 0, Note{Service: name("gone"), Reason: "ServiceRefused"}, nil},
		{"a text that is too long", 0, long, []string{`POST default Node /node1 node1 Warning SyncFailed "` + strings.Repeat("ä", 510) + `..." 1`}},
	} {
		now = now.Add(step.wait)
		r.record(t.Context(), step.note)
		if got := server.took(); !slices.Equal(got, step.want) {
			t.Errorf("%s:\n%q, want\n%q", step.what, got, step.want)
		}
	}

	now = now.Add(2 * time.Minute)
	server.lost = true // Events live for an hour
	r.record(t.Context(), refused)
	if got := server.took(); len(got) != 1 || !strings.HasPrefix(got[0], "POST ns Service ns/web") {
		t.Errorf("an Event that is gone: %q", got)
	}
	server.refuse = http.StatusForbidden
	r.record(t.Context(), Note{Reason: "Other", Message: "text"})
	if !log.has(`grant the verbs create and patch on resources [events]`) {
		t.Errorf("without rights the log says:\n%s", log.text.String())
	}
}

// Whoever tells is never kept waiting.
func TestTellNeverBlocks(t *testing.T) {
	s := source("", &logText{})
	for range 2 * notesWaiting {
		s.Tell(Note{Reason: "Starting"})
	}
	if n := len(s.notes); n != notesWaiting {
		t.Errorf("%d wait", n)
	}
}
