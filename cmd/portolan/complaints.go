package main

import (
	"log/slog"
	"slices"

	"portolan/service"
	"portolan/source/apiserver"
)

// optionNotFollowed is the reason of Events about options of a Service.
const optionNotFollowed = "OptionNotFollowed"

// newComplaintLog returns a function that tells of options of Services that are not
// followed, in the log and as Events, when they come.
func newComplaintLog(log *slog.Logger, tell func(apiserver.Note)) func(*service.Snapshot) {
	var last *service.Snapshot
	return func(s *service.Snapshot) {
		told := 0
		for c := range s.Changes(last) {
			for _, complaint := range newComplaints(c) {
				log.Warn("an option of a Service is not followed", "service", c.New.Name, "annotation", complaint.Option,
					"value", complaint.Value, "reason", complaint.Reason)
				if told++; told <= eventsAtOnce {
					tell(apiserver.Note{Service: c.New.Name, Warning: true, Reason: optionNotFollowed, Message: complaint.String()})
				}
			}
		}
		last = s
	}
}

func newComplaints(c service.Change) (out []service.Complaint) {
	if c.New == nil {
		return nil
	}
	for _, complaint := range c.New.Complaints {
		if c.Old == nil || !slices.Contains(c.Old.Complaints, complaint) {
			out = append(out, complaint)
		}
	}
	return out
}

// complaints lists the options that are not followed, by Service.
func complaints(s *service.Snapshot) []string {
	var with []*service.Service
	for svc := range s.All() {
		if len(svc.Complaints) > 0 {
			with = append(with, svc)
		}
	}
	slices.SortFunc(with, func(a, b *service.Service) int { return a.Name.Compare(b.Name) })
	var out []string
	for _, svc := range with {
		for _, c := range svc.Complaints {
			out = append(out, "Service "+svc.Name.String()+": "+c.String())
		}
	}
	return out
}
