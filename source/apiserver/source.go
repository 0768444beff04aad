package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"portolan/service"
	"portolan/source/kube"
)

const (
	// settle is the least time from one Snapshot to the next, so that a burst of
	// events gives few of them; busy, after so many in a row that had to wait, unless
	// nothing has come for a lull: a storm costs less, its last change waits no longer
	// than others, and one change among some others does not either.
	settle = 10 * time.Millisecond
	busy   = 40 * time.Millisecond
	lull   = 12 * time.Millisecond
	inARow = 10
	// nodeWait is how long a Node without addresses is waited for, as kube-proxy;
	// podCIDRWait, how long one without pod CIDRs where these are what pods are
	// known by.
	nodeWait    = 30 * time.Second
	podCIDRWait = 5 * time.Minute
	// retryMin and retryMax bound the time from one try to the next while nobody
	// answers; refusedMax is the most when the API server says no.
	retryMin   = 100 * time.Millisecond
	retryMax   = 700 * time.Millisecond
	refusedMax = 5 * time.Second
	// absentPause is the time from one try to the next for what a proxy can do
	// without.
	absentPause = time.Minute
)

// Options say what is followed, and how.
type Options struct {
	NodeName string
	// PodCIDRs tells that pods are known by the pod CIDRs of the Node.
	PodCIDRs bool
	Log      *slog.Logger
}

// Source keeps a kube.Cluster at what an API server says.
type Source struct {
	client  *Client
	options Options
	log     *slog.Logger
	wake    chan struct{}
	notes   chan Note
	follows []followed

	mu       sync.Mutex // of what follows, and of the stores
	cluster  *kube.Cluster
	services *store[*v1.Service, *kube.Service]
	slices   *store[*discovery.EndpointSlice, *kube.Slice]
	cidrs    *store[*networking.ServiceCIDR, *networking.ServiceCIDR]
	noCIDRs  bool // the API server said that there are none to be had
	node     *store[*v1.Node, *v1.Node]
	own      *v1.Node // as it was last, also when it is gone
}

// followed is a resource, where its objects go, and how it is going.
type followed struct {
	resource resource
	to       cache.ReflectorStore
	trouble  *trouble
}

// New returns a Source that reads into cluster, which nobody else may use from
// then on.
func New(client *Client, cluster *kube.Cluster, o Options) *Source {
	s := &Source{client: client, options: o, log: o.Log, wake: make(chan struct{}, 1), notes: make(chan Note, notesWaiting), cluster: cluster}
	s.services = newStore(s, kube.NewService,
		func(_, svc *kube.Service) { cluster.PutService(svc) },
		func(name service.Name, _ *kube.Service) { cluster.DeleteService(name) },
		s.listed("services"))
	s.slices = newStore(s, kube.NewSlice, s.putSlice,
		func(_ service.Name, last *kube.Slice) { cluster.DeleteSlice(last.Owner(), last.Name()) },
		s.listed("endpointslices"))
	s.cidrs = newStore(s, unchanged,
		func(_, o *networking.ServiceCIDR) { cluster.PutServiceCIDR(o) },
		func(name service.Name, _ *networking.ServiceCIDR) { cluster.DeleteServiceCIDR(name.Name) },
		s.listed("servicecidrs"))
	s.node = newStore(s, unchanged, s.putNode, s.removeNode, s.nodeListed)
	for _, f := range []followed{
		{resource: client.services(), to: s.services},
		{resource: client.endpointSlices(), to: s.slices},
		{resource: client.serviceCIDRs(), to: s.cidrs},
		{resource: client.node(o.NodeName), to: s.node},
	} {
		f.trouble = newTrouble(s.log, f.resource)
		s.follows = append(s.follows, f)
	}
	return s
}

// unchanged is the form of what is kept as it is, trimmed.
func unchanged[T any](o T) T { return o }

// change does something to the cluster, and has it looked at.
func (s *Source) change(do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := do()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return err
}

func (s *Source) listed(name string) func(bool, int) {
	return func(first bool, count int) {
		s.log.Info("list of the API server", "resource", name, "objects", count, "first", first)
	}
}

// putSlice: a slice that changed the Service it names no longer serves the old one.
func (s *Source) putSlice(old, slice *kube.Slice) {
	if old != nil && old.Owner() != slice.Owner() {
		s.cluster.DeleteSlice(old.Owner(), slice.Name())
	}
	s.cluster.PutSlice(slice)
}

// Watch calls changed with the first Snapshot once everything is known, and then
// after every change of the cluster or of the settings, until ctx ends. Settings
// that change meanwhile, such as local addresses, come as functions.
func (s *Source) Watch(ctx context.Context, settings <-chan func(*kube.Settings), changed func(*service.Snapshot)) error {
	ctx, stop := context.WithCancel(ctx)
	var reflectors sync.WaitGroup
	defer reflectors.Wait()
	defer stop()
	s.log.Info("following the API server", "url", s.client.Host, "node", s.options.NodeName)
	for _, f := range s.follows {
		reflectors.Go(func() { s.follow(ctx, f) })
	}
	reflectors.Go(func() { s.newRecorder().run(ctx, s.notes) })
	return s.tell(ctx, settings, changed)
}

// tell calls changed as Watch promises.
func (s *Source) tell(ctx context.Context, settings <-chan func(*kube.Settings), changed func(*service.Snapshot)) error {
	var (
		last     *service.Snapshot
		start    = starting{source: s}
		news     bool
		waited   int // Snapshots in a row that waited for the one before to settle
		settling <-chan time.Time
		quiet    <-chan time.Time // in a storm
	)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case change := <-settings:
			_ = s.change(func() error { s.cluster.Configure(change); return nil }) // it has no errors
			continue
		case <-s.wake:
			if news = true; settling != nil && waited >= inARow {
				quiet = time.After(lull)
			}
		case <-quiet:
			quiet, settling = nil, nil
		case <-start.timer:
			start.timer = nil
			start.patience++
			news = true
		case <-settling:
			quiet, settling = nil, nil
			if waited++; !news {
				waited = 0
			}
		}
		if !news || settling != nil || !start.over() {
			continue
		}
		if settling = time.After(settle); waited >= inARow {
			settling = time.After(busy)
		}
		news = false
		s.mu.Lock()
		now := s.cluster.Snapshot()
		s.mu.Unlock()
		if now != last {
			last = now
			changed(now)
		}
	}
}

// follow keeps a store at what the API server says of a resource.
func (s *Source) follow(ctx context.Context, f followed) {
	r := f.resource
	// What changed while the API server was away is to be right within a second of
	// its return, so who refuses connections is asked again soon.
	reflector := cache.NewReflectorWithOptions(r.listWatch(f.trouble.report), r.object, f.to, cache.ReflectorOptions{
		Name:    "portolan/" + r.name,
		Backoff: &wait.Backoff{Duration: retryMin, Factor: 1.5, Steps: 8, Cap: retryMax, Jitter: 0.2},
	})
	tries := 0
	for ctx.Err() == nil {
		err := reflector.ListAndWatchWithContext(ctx)
		tries++
		if err == nil {
			tries = 0
		}
		wait := pause(err, tries)
		if r.without != "" && absent(err) && s.goOnWithout() {
			wait = absentPause
		}
		s.log.Debug("list and watch again", "resource", r.name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// goOnWithout takes it for settled that there are no ServiceCIDRs to be had, once
// the API server has answered for what there must be: rights may just be coming.
func (s *Source) goOnWithout() (settled bool) {
	_ = s.change(func() error { // which has none
		settled = s.services.full && s.slices.full
		s.noCIDRs = s.noCIDRs || settled
		return nil
	})
	return settled
}

// pause is the time from one try that failed to the next. A server that answers is
// given more and more of it.
func pause(err error, tries int) time.Duration {
	most := retryMax
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		most = refusedMax
	}
	return min(retryMin*time.Duration(max(tries, 1)), most)
}
