package main

import (
	"log/slog"
	"slices"

	"portolan/backend/ipvs"
	"portolan/config"
	"portolan/service"
	"portolan/source/apiserver"
	"portolan/source/kube"
)

// optionNotFollowed is the reason of Events about options of a Service.
const optionNotFollowed = "OptionNotFollowed"

// complaintsIn returns a function that lists the options of a Service that are not
// followed in the mode of a configuration: those that are wrong, and those that IPVS
// cannot express.
func complaintsIn(c config.Config) func(*service.Service) []service.Complaint {
	if c.Mode != config.IPVS {
		return func(s *service.Service) []service.Complaint { return s.Complaints }
	}
	b := ipvs.New(ipvsOptions(c, service.IPv4))
	return func(s *service.Service) []service.Complaint {
		reason := b.Unweighted(s)
		if reason == "" {
			return s.Complaints
		}
		option := kube.OptionPrefix + "weights"
		if s.SlowStart > 0 {
			option = kube.OptionPrefix + "slow-start"
		}
		return append(s.Complaints[:len(s.Complaints):len(s.Complaints)], service.Complaint{Option: option, Reason: reason})
	}
}

// newComplaintLog returns a function that tells of options of Services that are not
// followed, in the log and as Events, when they come.
func newComplaintLog(of func(*service.Service) []service.Complaint, log *slog.Logger, tell func(apiserver.Note)) func(*service.Snapshot) {
	var last *service.Snapshot
	return func(s *service.Snapshot) {
		told := 0
		for c := range s.Changes(last) {
			for _, complaint := range newComplaints(c, of) {
				log.Warn("an option of a Service is not followed", "service", c.New.Name, "annotation", complaint.Option,
					"value", complaint.Shown(), "reason", complaint.Reason)
				if told++; told <= eventsAtOnce {
					tell(apiserver.Note{Service: c.New.Name, Warning: true, Reason: optionNotFollowed, Message: complaint.String()})
				}
			}
		}
		last = s
	}
}

// newComplaints are those that a change of a Service brought.
func newComplaints(c service.Change, of func(*service.Service) []service.Complaint) (out []service.Complaint) {
	if c.New == nil {
		return nil
	}
	var before []service.Complaint
	if c.Old != nil {
		before = of(c.Old)
	}
	for _, complaint := range of(c.New) {
		if !slices.Contains(before, complaint) {
			out = append(out, complaint)
		}
	}
	return out
}

// complaints lists the options that are not followed, by Service.
func complaints(s *service.Snapshot, of func(*service.Service) []service.Complaint) []string {
	with := slices.SortedFunc(s.All(), func(a, b *service.Service) int { return a.Name.Compare(b.Name) })
	var out []string
	for _, svc := range with {
		for _, c := range of(svc) {
			out = append(out, "Service "+svc.Name.String()+": "+c.String())
		}
	}
	return out
}
