package nftables

import (
	"context"
	"encoding/binary"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/kernel/nft"
	"portolan/service"
)

// history is a node on which anything happens.
type history struct {
	t     *testing.T
	r     *rapid.T
	f     family
	b     *Backend
	sync  *dataplane.Sync
	dies  int // after how many transactions a write breaks off; below 0 for none
	node  service.Node
	now   map[int]*service.Service
	apart bool // others changed something since the last look
	bad   int  // what the kernel refuses of the Service default/bad; below 0 for none
}

// breaksOff is a context that ends after so many questions.
type breaksOff struct {
	context.Context
	left *int
}

func (c breaksOff) Err() error {
	if *c.left == 0 {
		return context.Canceled
	}
	*c.left--
	return nil
}

// mortal is a Backend that may break off in a write.
type mortal struct {
	*Backend
	h *history
}

func (m mortal) Apply(ctx context.Context, p dataplane.Plan) error {
	return m.Backend.Apply(breaksOff{ctx, &m.h.dies}, p)
}

// TestAnyHistory: whatever Services of whatever kind came, changed and went, whatever
// others did to the table, and wherever a write broke off or a process was killed, the
// table holds what a first start would write, nothing waits, no number is left, and
// nobody is remembered at an endpoint that is gone, where the scope has frontends: others
// may have all its addresses.
func TestAnyHistory(t *testing.T) {
	netnstest.Enter(t)
	rapid.Check(t, func(r *rapid.T) {
		f := rapid.SampledFrom(families).Draw(r, "family")
		h := &history{t: t, r: r, f: f, dies: -1, bad: -1, node: drawNode(f, r), now: map[int]*service.Service{}}
		h.start()
		defer func() {
			h.ended()
			h.meddle("delete table")
		}()
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			h.step()
		}
		h.write()
		h.bad = -1
		h.setBad()
		h.write()
		h.end()
	})
}

// start is that of a process.
func (h *history) start() {
	conn, err := nft.Dial()
	if err != nil {
		h.r.Fatal(err)
	}
	h.ended()
	h.b = New(Options{Family: h.f.Family, MasqueradeBit: 14, Conn: conn})
	h.b.removeAfter = time.Hour // see settle
	h.b.batchLimit, h.b.firstLimit = 3, 2
	h.sync = dataplane.NewSync(mortal{h.b, h})
	h.program(slices.Collect(maps.Values(h.now))...)
	h.setBad()
}

// setBad has the Service default/bad ask for something that the kernel refuses, or for
// nothing.
func (h *history) setBad() {
	const owner = "default/bad"
	if h.bad < 0 {
		h.sync.Remove(owner)
		return
	}
	at := at(h.f.Cluster, 77).String() + " . tcp . 80"
	front := dataplane.Key{Container: frontends, Rank: dataplane.Keyed, Name: at}
	ranges := map[service.Family]string{service.IPv4: "10.0.0.0/8, 10.1.0.0/16", service.IPv6: "fd00::/8, fd00:1::/32"}[h.f.Family]
	bad := []dataplane.Object{
		numbered(balancing, "nat-output"),
		{Key: front, Body: at + " : goto"},
		{Key: dataplane.Key{Container: "chain/odd"}, Body: "ip saddr of whom"},
		{Key: front, Body: at + " : goto lb-2; from " + ranges},
	}[h.bad]
	h.sync.Set(dataplane.Owner{Name: owner}, []dataplane.Object{bad, h.b.set(noEndpoints)})
}

// ended is what is left of a process.
func (h *history) ended() {
	if h.b != nil {
		h.b.stop()
		h.b.options.Conn.Close()
	}
}

func (h *history) program(list ...*service.Service) {
	h.sync.Set(dataplane.Owner{}, h.b.Base(h.node))
	for _, s := range list {
		objects, err := h.b.Render(h.node, s)
		if err != nil {
			h.r.Fatal(err)
		}
		h.sync.Set(dataplane.Owner{Name: s.Name.String(), Since: s.Created}, objects)
	}
}

// step is one of the things that happen.
func (h *history) step() {
	switch rapid.IntRange(0, 12).Draw(h.r, "step") {
	case 12:
		most := 3
		if olderThan(h.t, 6, 12) {
			most = 2 // it takes ranges that overlap
		}
		h.bad = rapid.IntRange(-1, most).Draw(h.r, "bad")
		h.setBad()
	case 0:
		h.node = drawNode(h.f, h.r)
		h.program(slices.Collect(maps.Values(h.now))...)
	case 1:
		h.meddle(rapid.SampledFrom(damages).Draw(h.r, "others"))
	case 2: // killed in the middle of a write
		h.dies = rapid.IntRange(0, 6).Draw(h.r, "killed after")
		_, _ = h.sync.Apply(context.Background())
		h.dies = -1
		h.start()
	case 3: // fails in the middle of a write
		h.dies = rapid.IntRange(0, 6).Draw(h.r, "fails after")
		_, _ = h.sync.Apply(context.Background())
		h.dies = -1
	case 4:
		_ = h.b.Settle(context.Background()) // fails where others did something
	case 5, 6:
		h.write()
		h.remember()
	case 7:
		h.write()
		nothingToDo(h.t, h.b, h.node, slices.Collect(maps.Values(h.now))...)
	default:
		for range rapid.IntRange(1, 3).Draw(h.r, "changes") {
			i := rapid.IntRange(1, 4).Draw(h.r, "service")
			if rapid.IntRange(0, 3).Draw(h.r, "gone") == 0 {
				delete(h.now, i)
				h.sync.Remove(h.f.Web(i, 0).Name.String())
				continue
			}
			h.now[i] = drawAny(h.f, h.r, i)
			h.program(h.now[i])
		}
	}
}

// damages are what others do.
var damages = []string{"flush map service-ips", "flush set cluster-ips", "flush map balancers", "flush set hairpin", "flush chain services",
	"flush set sources", "flush map no-endpoints", "flush map affinity-ids", "flush set affinity-scopes", "flush map affinity-learn",
	"flush map eps-1", "flush map eps-2", "flush map eps-3", "flush chain lb-2", "delete table", "delete chain layout-3"}

// meddle is what others do to the table, where there is something to do it to.
func (h *history) meddle(what string) {
	words := strings.Fields(what)
	command := append(words[:2:2], h.b.words.ip, TableName)
	_ = exec.Command("nft", append(command, words[2:]...)...).Run()
	h.apart = true
}

// write ends when all is written. Where others did something a look may be needed, and
// another where it shows that the table has to be replaced.
func (h *history) write() {
	h.r.Helper()
	var r dataplane.Report
	var err error
	for try := range 4 {
		if h.apart || try > 0 || rapid.IntRange(0, 4).Draw(h.r, "look") == 0 {
			r, err = h.sync.Reconcile(context.Background())
		} else {
			r, err = h.sync.Apply(context.Background())
		}
		if err == nil {
			break
		}
		if !h.apart && h.bad < 0 { // else the kernel may differ from what is believed
			h.r.Fatal(err)
		}
	}
	h.apart = false
	others := slices.ContainsFunc(r.Rejected, func(r dataplane.Rejection) bool { return r.Owner != "default/bad" })
	if err != nil || others || len(r.Rejected) != min(h.bad+1, 1) {
		h.r.Fatalf("%v, rejected %+v", err, r.Rejected)
	}
}

// remember has the table remember clients of every scope at each of its endpoints.
func (h *history) remember() {
	batch := nft.NewBatch(h.b.table)
	at := uint32(1)
	for scope, endpoints := range h.scopes() {
		for e := range endpoints {
			addr := h.b.words.addrLen
			endpoint, _ := netip.AddrFromSlice([]byte(e[:addr]))
			port := binary.BigEndian.Uint16([]byte(e[addr:]))
			client := netip.AddrFrom4([4]byte{11, 0, byte(at >> 8), byte(at)})
			if h.f.Family == service.IPv6 {
				client = netip.AddrFrom16([16]byte{0x20, 1, 14: byte(at >> 8), 15: byte(at)})
			}
			at++
			set, element := clientElement(h.b, scope, client, netip.AddrPortFrom(endpoint, port))
			batch.AddElement(set, element, 0)
		}
	}
	_ = h.b.options.Conn.Commit(batch) // of the same client another endpoint may be known
}

// scopes lists the endpoints of each scope that the kernel leads to.
func (h *history) scopes() map[uint32]map[string]bool {
	entries := map[string]*entry{}
	o := observation{b: h.b, yield: func(dataplane.Object, error) bool { return true }, late: newWaiting()}
	sets, err := h.b.options.Conn.Sets(h.b.table)
	if err != nil {
		h.r.Fatal(err)
	}
	for _, set := range sets {
		if s, ours := shapeOf(set.Name); ours && s.ofFrontends(set.Name) {
			if err := o.elements(set.Name, entries); err != nil {
				h.r.Fatal(err)
			}
		}
	}
	return h.b.endpointsIn(entries)
}

// end holds what is there against a first start.
func (h *history) end() {
	t, r := h.t, h.r
	settle(t, h.b)
	if !h.b.late.empty() || h.b.late.timer != nil {
		r.Errorf("something waits: %+v", h.b.late)
	}
	scopes := h.scopes()
	sets, err := h.b.options.Conn.Sets(h.b.table)
	if err != nil {
		r.Fatal(err)
	}
	for _, set := range sets {
		s, ours := shapeOf(set.Name)
		if !ours || !s.isClients() {
			continue
		}
		end := h.b.words.portIn(set.Name, s)
		err := h.b.options.Conn.Elements(h.b.table, set.Name, func() {}, func(e nft.Element) {
			id := binary.NativeEndian.Uint32(e.Key[len(e.Key)-4:])
			endpoints, used := scopes[id]
			if name := h.b.ids.name(id); name == "" || used && !endpoints[string(e.Data)+end] {
				r.Errorf("a client in scope %q is remembered at %v%v", name, e.Data, []byte(end))
			}
		})
		if err != nil {
			r.Fatal(err)
		}
	}
	numbers := slices.Sorted(maps.Keys(h.b.ids.byName))
	got := content(t, h.b)
	dropTable(t, h.b)
	h.start()
	h.write()
	settle(t, h.b)
	if want := slices.Sorted(maps.Keys(h.b.ids.byName)); !slices.Equal(numbers, want) {
		r.Errorf("numbers of %q, and at first of %q", numbers, want)
	}
	if want := content(t, h.b); !maps.Equal(got, want) {
		r.Errorf("after the history %v\nwant %v", got, want)
	}
}

// drawNode is a node with pods told by address, by interface or not at all.
func drawNode(f family, r *rapid.T) service.Node {
	node := nodeOf(f)
	node.Detector = rapid.SampledFrom([]service.PodDetector{node.Detector, {Bridge: "cbr0"}, {InterfacePrefix: "veth"}, {}}).Draw(r, "detector")
	node.MasqueradeAll = rapid.Bool().Draw(r, "masquerade all")
	node.IPs = []netip.Addr{at(f.Node, 10)}
	if rapid.Bool().Draw(r, "selected") {
		node.NodePorts.Local = []netip.Addr{at(f.Node, 10), at(f.Node, 11)}[:rapid.IntRange(1, 2).Draw(r, "addresses")]
		node.NodePorts.Prefixes = []netip.Prefix{netip.PrefixFrom(at(f.Node, 0), 24).Masked()}
	}
	node.ServiceCIDRs = node.ServiceCIDRs[:rapid.IntRange(0, 3).Draw(r, "CIDRs")]
	return node
}

// drawAny is a Service of any kind, with addresses for which others ask too.
func drawAny(f family, r *rapid.T, i int) *service.Service {
	s := draw(f, r, i)
	s.Created = time.Unix(int64(rapid.IntRange(1, 3).Draw(r, "created")), 0)
	s.Algorithm = rapid.SampledFrom([]service.Algorithm{service.Random, service.RoundRobin}).Draw(r, "algorithm")
	s.RejectNoLocal = rapid.Bool().Draw(r, "reject")
	if len(s.LoadBalancerIPs) > 0 && rapid.Bool().Draw(r, "nested") {
		for range rapid.IntRange(1, 4).Draw(r, "ranges") {
			bits := rapid.SampledFrom([]int{0, 8, 16, 23, 24, 31, 32}).Draw(r, "bits")
			s.SourceRanges = append(s.SourceRanges, netip.PrefixFrom(at(f.Node, rapid.IntRange(9, 12).Draw(r, "in")), bits).Masked())
		}
	}
	s.Ports = nil
	for at, name := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(r, "ports")] {
		p := service.Port{Name: name, Port: uint16(80 + at)}
		p.Protocol = rapid.SampledFrom([]service.Protocol{service.TCP, service.UDP, service.SCTP}).Draw(r, "protocol")
		if rapid.Bool().Draw(r, "nodeport") {
			p.NodePort = uint16(30000 + 3*rapid.IntRange(0, 1).Draw(r, "number") + at)
		}
		p.Endpoints = drawEndpoints(f, r)
		s.Ports = append(s.Ports, p)
	}
	return s
}

// drawEndpoints are some, in any state.
func drawEndpoints(f family, r *rapid.T) (out []service.Endpoint) {
	for _, e := range f.Endpoints(4, rapid.SampledFrom([]uint16{8080, 9090}).Draw(r, "port")) {
		state := rapid.IntRange(0, 5).Draw(r, "endpoint")
		switch state {
		case 0:
			continue
		case 1:
			e.Ready = false
		case 2:
			e.Ready, e.Terminating = false, true
		case 3:
			e.Weight = service.Weight(rapid.IntRange(1, 3).Draw(r, "weight"))
		}
		out = append(out, e)
	}
	return out
}
