package localhost

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"portolan/service"
)

// retryEvery is the time from one try to listen to the next, on ports that somebody
// else has.
const retryEvery = 2 * time.Second

// Server listens on loopback and answers. Its methods are safe for use by several
// goroutines.
type Server struct {
	log    *slog.Logger
	newest atomic.Pointer[service.Snapshot]
	wake   chan struct{}
	listen func(context.Context, Port, *picker) (listener, error)

	table *table // of Run alone

	mu       sync.Mutex
	open     map[Port]*opened
	refused  map[Port]Refused
	since    map[service.Family]time.Time // of the oldest of refused
	failures map[service.Family]int
}

// listener is an open Port. Closing it leaves connections alone.
type listener interface {
	// retarget is told after the picker has another Target.
	retarget()
	close()
}

type opened struct {
	listener
	picker *picker
}

// New returns a Server that listens nowhere yet.
func New(log *slog.Logger) *Server {
	carrier := &carrier{log: log, sessions: newSessions(mostSessions)}
	return &Server{log: log, wake: make(chan struct{}, 1), listen: carrier.listen, table: newTable(),
		open: map[Port]*opened{}, refused: map[Port]Refused{}, since: map[service.Family]time.Time{}, failures: map[service.Family]int{}}
}

// Publish has the Server answer as the Snapshot says. It does not block.
func (s *Server) Publish(now *service.Snapshot) {
	s.newest.Store(now)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, which ends all connections too.
func (s *Server) Run(ctx context.Context) error {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for p := range s.open {
			s.shut(p)
		}
	}()
	var again <-chan time.Time // nil while nothing was refused
	for {
		if again == nil && s.anyRefused() {
			again = time.After(retryEvery)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
			for _, p := range s.table.update(s.newest.Load()) {
				s.follow(ctx, p)
			}
		case <-again:
			again = nil
			for _, p := range s.Refused() {
				s.follow(ctx, p.Port)
			}
		}
	}
}

// follow makes a Port what the table says of it.
func (s *Server) follow(ctx context.Context, p Port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	target, wanted := s.table.target(p)
	switch o := s.open[p]; {
	case !wanted:
		s.shut(p)
		s.forgive(p)
	case o != nil:
		o.picker.set(target)
		o.retarget()
	default:
		o := &opened{picker: &picker{target: target}}
		var err error
		if o.listener, err = s.listen(ctx, p, o.picker); err != nil {
			s.refuse(p, target, err)
			return
		}
		if _, was := s.refused[p]; was {
			s.log.Info("a NodePort answers on loopback now", "service", target.Name, "listen", p)
		}
		s.open[p] = o
		s.forgive(p)
	}
}

func (s *Server) shut(p Port) {
	if o := s.open[p]; o != nil {
		o.close()
		delete(s.open, p)
	}
}

// refuse notes that somebody else has a Port.
func (s *Server) refuse(p Port, t Target, err error) {
	f := p.family()
	s.failures[f]++
	if s.since[f].IsZero() {
		s.since[f] = time.Now()
	}
	if _, was := s.refused[p]; !was {
		s.log.Error("a NodePort does not answer on loopback, will be tried again", "service", t.Name, "listen", p, "error", err)
	}
	s.refused[p] = Refused{p, t.Name, fmt.Errorf("localhost: Service %s: listen on %s: %w", t.Name, p, err)}
}

func (s *Server) forgive(p Port) {
	delete(s.refused, p)
	for other := range s.refused {
		if other.family() == p.family() {
			return
		}
	}
	delete(s.since, p.family())
}

func (s *Server) anyRefused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.refused) > 0
}

// Refused is a Port that could not be listened on, and whose it is.
type Refused struct {
	Port    Port
	Service service.PortName
	Err     error
}

// Refused returns the Ports on which this process should listen and cannot, sorted.
func (s *Server) Refused() []Refused {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Refused
	for _, p := range slices.SortedFunc(maps.Keys(s.refused), comparePorts) {
		out = append(out, s.refused[p])
	}
	return out
}

// State is how one family fares.
type State struct {
	Listeners int       // open
	Refused   int       // not open, though wanted
	Since     time.Time // when the first of those could not be opened; zero for none
	Failures  int       // tries that failed, ever
}

// State returns how a family fares.
func (s *Server) State(f service.Family) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := State{Since: s.since[f], Failures: s.failures[f]}
	for p := range s.open {
		if p.family() == f {
			out.Listeners++
		}
	}
	for p := range s.refused {
		if p.family() == f {
			out.Refused++
		}
	}
	return out
}
