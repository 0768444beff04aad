package main

import (
	"fmt"
	"strings"

	"portolan/agent"
	"portolan/config"
	"portolan/service"
	"portolan/source/apiserver"
)

// serviceProgrammed and nodeRecovered are the reasons of Events that end those about a
// Service and about the node; starting is kube-proxy's.
const (
	serviceProgrammed = "ServiceProgrammed"
	nodeRecovered     = "Recovered"
	starting          = "Starting"
)

// eventsAtOnce bounds the Services that get an Event after one write: where more fail,
// something is wrong with the node, which gets one that counts the others.
const eventsAtOnce = 50

// notesOf says in Events what is new after a write.
func notesOf(f service.Family, news []agent.News) (out []apiserver.Note) {
	more := 0
	for _, n := range news {
		switch {
		case n.Gone:
		case n.Object != "" && len(out) >= eventsAtOnce:
			more++
		default:
			out = append(out, noteOf(n))
		}
	}
	if more > 0 {
		out = append(out, apiserver.Note{Warning: true, Reason: "ServicesNotProgrammed",
			Message: fmt.Sprintf("%v: there is news of %d more Services than get an Event; /debug/failures and /healthz?verbose name them", f, more)})
	}
	return out
}

// noteOf words news as an Event.
func noteOf(n agent.News) apiserver.Note {
	namespace, name, _ := strings.Cut(n.Object, "/")
	note := apiserver.Note{Service: service.Name{Namespace: namespace, Name: name}, Warning: !n.Over,
		Reason: string(n.Reason), Message: fmt.Sprintf("%v: %s", n.Family, n.Message)}
	switch {
	case !n.Over && n.Reason == agent.SyncFailed:
		note.Message = fmt.Sprintf("%v: nothing could be written, it will be tried again: %s", n.Family, n.Message)
	case !n.Over:
	case n.Object == "":
		note.Reason, note.Message = nodeRecovered, fmt.Sprintf("%v: over is %s: %s", n.Family, n.Reason, n.Message)
	default:
		note.Reason, note.Message = serviceProgrammed, fmt.Sprintf("%v: this node answers for the Service as it asks; over is %s: %s", n.Family, n.Reason, n.Message)
	}
	return note
}

// startNote is kube-proxy's Event of a start.
func startNote(mode config.Mode) apiserver.Note {
	return apiserver.Note{Reason: starting, Message: fmt.Sprintf("portolan %s, mode %s", version, mode)}
}
