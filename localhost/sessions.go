package localhost

import (
	"container/list"
	"sync"
	"time"
)

// How UDP sessions end: idle, as the kernel's conntrack has it by default, or as
// the one that was idle longest when there are too many of all Ports together.
const (
	idleUnanswered = 30 * time.Second  // nf_conntrack_udp_timeout
	idleAnswered   = 120 * time.Second // nf_conntrack_udp_timeout_stream
	mostSessions   = 4096
)

// sessions keeps UDP sessions in the order of their last use, at most a number.
type sessions struct {
	mu    sync.Mutex
	most  int
	order *list.List // of *session, the last used first
}

// session is a client of a Port with its endpoint.
type session struct {
	end      func() // once
	place    *list.Element
	used     time.Time
	answered bool
}

func newSessions(most int) *sessions { return &sessions{most: most, order: list.New()} }

// add takes a session in; when there are too many, the one that was used longest
// ago ends.
func (s *sessions) add(one *session, now time.Time) {
	s.mu.Lock()
	one.used = now
	one.place = s.order.PushFront(one)
	var oldest *session
	if s.order.Len() > s.most {
		oldest = s.order.Remove(s.order.Back()).(*session)
		oldest.place = nil
	}
	s.mu.Unlock()
	if oldest != nil {
		oldest.end()
	}
}

// use notes a datagram of a session: from the client, or an answer.
func (s *sessions) use(one *session, now time.Time, answer bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.used = now
	one.answered = one.answered || answer
	if one.place != nil {
		s.order.MoveToFront(one.place)
	}
}

// expires is when a session ends if nothing is heard of it.
func (s *sessions) expires(one *session) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.answered {
		return one.used.Add(idleAnswered)
	}
	return one.used.Add(idleUnanswered)
}

// remove forgets a session that has ended.
func (s *sessions) remove(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.place != nil {
		s.order.Remove(one.place)
		one.place = nil
	}
}
