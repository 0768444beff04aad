package ipvs

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"portolan/dataplane"
	"portolan/kernel/ipset"
	"portolan/kernel/iptables"
	"portolan/kernel/ipvs"
	"portolan/service"
)

// DeviceName is the dummy device that holds the addresses of Services; it is
// kube-proxy's.
const DeviceName = "kube-ipvs0"

// DefaultScheduler balances in turn; it is kube-proxy's default.
const DefaultScheduler = inTurn

// Options say what one family's Backend writes.
type Options struct {
	Family service.Family
	// MasqueradeBit is the bit of the packet mark that asks for masquerade, 0 to 31.
	MasqueradeBit int
	// RandomFully adds --random-fully to MASQUERADE; see iptables.Tool.
	RandomFully bool
	// LiberalTCP leaves out the rule that drops INVALID packets.
	LiberalTCP bool
	// Scheduler of IPVS for all Services; empty for DefaultScheduler.
	Scheduler string
	// Exclude are the addresses whose virtual servers are somebody else's.
	Exclude []netip.Prefix
	// DrainWithin is how long a real server that is gone may keep connections; 0
	// for ever.
	DrainWithin time.Duration

	// Kernel is where all is written. Base, Render and PlanText work without.
	Kernel *Kernel
	// Watch is shared by the Backends of both families; see iptables.Watch. Without
	// one, changes by others are found by full looks alone.
	Watch *iptables.Watch
	// Trouble hears of what nobody waits for that failed, and of real servers that
	// are left out; may be nil.
	Trouble func(error)
}

// Kernel is the present network namespace as one family's Backend writes it.
type Kernel struct {
	Servers *ipvs.Conn
	Device  *ipvs.Device
	Sets    *ipset.Conn
	Tool    *iptables.Tool
}

// OpenKernel opens what is written in the network namespace of the calling thread;
// rules are written by tool.
func OpenKernel(tool *iptables.Tool) (*Kernel, error) {
	k := &Kernel{Tool: tool}
	var err error
	if k.Servers, err = ipvs.Dial(); err != nil {
		return nil, err
	}
	if k.Sets, err = ipset.Dial(); err == nil {
		k.Device, err = ipvs.OpenDevice(DeviceName)
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// Close ends the use of the kernel; everything stays in it.
func (k *Kernel) Close() {
	if k.Servers != nil {
		k.Servers.Close()
	}
	if k.Sets != nil {
		k.Sets.Close()
	}
	if k.Device != nil {
		k.Device.Close()
	}
}

// Backend is the agent's Backend for one family.
type Backend struct {
	options Options
	mark    string // as written: value and mask are the same 8 digits
	sets    [setCount]ipset.Set
	setOf   map[string]*set                     // by name in the family
	jumps   map[string]map[string]dataplane.Key // by container and body
	rules   [setCount][]dataplane.Object        // that a set needs when it is not empty

	mu sync.Mutex // guards what is below, and the sockets of the kernel
	drains
	unroutable map[realID]bool // real servers that no route leads to
}

// New returns a Backend. It touches nothing.
func New(o Options) *Backend {
	if o.Scheduler == "" {
		o.Scheduler = DefaultScheduler
	}
	b := &Backend{options: o, mark: fmt.Sprintf("0x%08x", uint32(1)<<o.MasqueradeBit), drains: newDrains(),
		unroutable: map[realID]bool{}}
	b.sets, b.setOf = kernelSets(o.Family), map[string]*set{}
	for i := range sets {
		b.setOf[b.name(setID(i))] = &sets[i]
	}
	b.jumps = jumpKeys()
	for i := range b.rules {
		b.rules[i] = b.rulesOf(setID(i))
	}
	return b
}

func (b *Backend) ipv6() bool { return b.options.Family == service.IPv6 }
