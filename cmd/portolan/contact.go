package main

import (
	"fmt"
	"time"

	"portolan/healthcheck"
	"portolan/source/apiserver"
)

const (
	// heardWithin is how long requests may fail before it counts: watches end all the
	// time, and are begun anew.
	heardWithin = 30 * time.Second
	// silentWithin is the most that a watch is silent where nothing fails: it ends
	// within ten minutes, and is begun anew.
	silentWithin = 15 * time.Minute
)

// contactCondition tells whether the API server is heard of everything that is
// followed; no condition without an API server.
func contactCondition(contacts []apiserver.Contact, now time.Time) []healthcheck.Condition {
	if len(contacts) == 0 {
		return nil
	}
	c := healthcheck.Condition{Type: healthcheck.APIServerHeard, Status: "True", Message: "the API server tells of every change"}
	oldest := contacts[0].Heard
	for _, contact := range contacts {
		if contact.Heard.Before(oldest) {
			oldest = contact.Heard
		}
		since, text := stale(contact, now)
		if text != "" && (c.Since == nil || since.Before(*c.Since)) {
			c.Status, c.Since, c.Message = "False", &since, text
		}
	}
	if !oldest.IsZero() {
		oldest = oldest.UTC()
		c.LastSuccess = &oldest
	}
	return []healthcheck.Condition{c}
}

// stale tells since when what is known of a resource may be old, and why; no text when
// it is not.
func stale(c apiserver.Contact, now time.Time) (since time.Time, text string) {
	switch {
	case !c.Failing.IsZero() && now.Sub(c.Failing) >= heardWithin:
		return c.Failing.UTC(), fmt.Sprintf("what is known of %s stays in force, and may be old: %s", c.Resource, c.Err)
	case !c.Heard.IsZero() && now.Sub(c.Heard) >= silentWithin:
		return c.Heard.UTC(), fmt.Sprintf("what is known of %s stays in force, and may be old: nothing was heard", c.Resource)
	}
	return time.Time{}, ""
}
