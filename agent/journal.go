package agent

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"portolan/service"
)

// Reason says what sort of trouble there is, in one word as Events have it.
type Reason string

// The reasons. The first three are about a Service, the others about the node.
const (
	ServiceInvalid  Reason = "ServiceInvalid"         // it asks for what cannot be written
	ServiceRefused  Reason = "ServiceRefused"         // the kernel does not take its rules
	AddressConflict Reason = "ServiceAddressConflict" // an older Service has an address it asks for
	SyncFailed      Reason = "SyncFailed"             // an attempt to write failed as a whole
	RulesRepaired   Reason = "RulesRepaired"          // somebody else changed rules; they are as they were
)

// News is trouble that began or that looks different now, or that is over.
type News struct {
	Object  string // namespace/name of a Service; empty for the node
	Family  service.Family
	Reason  Reason
	Message string
	Over    bool
	// Gone tells that it is over because nobody asks for the Service any more.
	Gone bool
}

// Failure is trouble as a Journal remembers it. Fields are added, never renamed.
type Failure struct {
	Object  string     `json:"object,omitempty"` // namespace/name of a Service; the node without
	Family  string     `json:"family"`
	Reason  Reason     `json:"reason"`
	Message string     `json:"message"`
	Count   int        `json:"count"` // how often it was met
	First   time.Time  `json:"first"`
	Last    time.Time  `json:"last"`
	Over    *time.Time `json:"over,omitempty"` // since when it is no more
}

// remembered bounds a Journal: what is over goes first, then what is oldest.
const remembered = 256

// Journal remembers the last failures. Its zero value is empty, and its methods may be
// called from several goroutines.
type Journal struct {
	mu        sync.Mutex
	list      []Failure
	forgotten int
}

// Note takes news; a trouble that is not over counts once more.
func (j *Journal) Note(now time.Time, n News) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now = now.UTC()
	i := slices.IndexFunc(j.list, func(f Failure) bool {
		return f.Over == nil && f.Object == n.Object && f.Family == n.Family.String() && f.Reason == n.Reason
	})
	switch {
	case i >= 0 && n.Over:
		j.list[i].Over = &now
	case n.Over:
	case i >= 0:
		f := &j.list[i]
		f.Count++
		f.Last, f.Message = now, n.Message
	default:
		if len(j.list) == remembered {
			j.forget()
		}
		j.list = append(j.list, Failure{Object: n.Object, Family: n.Family.String(), Reason: n.Reason,
			Message: n.Message, Count: 1, First: now, Last: now})
	}
}

// forget makes room for one.
func (j *Journal) forget() {
	i := max(slices.IndexFunc(j.list, func(f Failure) bool { return f.Over != nil }), 0)
	j.list = slices.Delete(j.list, i, i+1)
	j.forgotten++
}

// Failures returns what is remembered, the last ones first, and how many more there
// were.
func (j *Journal) Failures() (list []Failure, forgotten int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	list = slices.Clone(j.list)
	slices.SortStableFunc(list, func(a, b Failure) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Family, b.Family))
	})
	return list, j.forgotten
}
