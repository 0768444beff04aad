package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// Pod is a host behind a node's bridge whose servers answer with one line: its
// name and the address they saw, "NAME IP:PORT".
type Pod struct {
	Host
	Node  *Node
	Ports []uint16

	port string // on the node's bridge

	mu        sync.Mutex
	listeners []net.Listener
	sockets   []net.PacketConn
	conns     map[net.Conn]struct{}
	idle      *sync.Cond // conns became empty
	heard     map[string]bool
	ended     bool
}

// AddPod adds a pod to the running lab; it answers when AddPod returns.
func (l *Lab) AddPod(spec PodSpec) (*Pod, error) {
	node := l.Node(spec.Node)
	if node == nil {
		return nil, fmt.Errorf("lab: pod %s: no node %q", spec.Name, spec.Node)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("lab: pod %s: the lab is closed", spec.Name)
	}
	if l.pods[spec.Name] != nil {
		return nil, fmt.Errorf("lab: pod %s: the name is taken", spec.Name)
	}
	host, err := l.newHost(spec.Name, spec.Addrs)
	if err != nil {
		return nil, err
	}
	l.podsMade++
	p := &Pod{Host: host, Node: node, Ports: spec.Ports, port: fmt.Sprintf("veth%d", l.podsMade), conns: map[net.Conn]struct{}{}, heard: map[string]bool{}}
	p.idle = sync.NewCond(&p.mu)
	if err := p.start(); err != nil {
		p.shut()
		return nil, fmt.Errorf("lab: pod %s: %w", spec.Name, err)
	}
	l.pods[spec.Name] = p
	return p, nil
}

// Pod finds a pod by name; nil if there is none (any more).
func (l *Lab) Pod(name string) *Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[name]
}

// start plugs the pod into its node's bridge and opens its ports.
func (p *Pod) start() error {
	var addrs []netip.Prefix
	for _, a := range p.Addrs {
		network, err := p.Node.podNetwork(a)
		if err != nil {
			return err
		}
		addrs = append(addrs, netip.PrefixFrom(a, network.Bits()))
	}
	if err := p.Node.plug("cni0", p.port, true, &p.Host, addrs...); err != nil {
		return err
	}
	if mtu := p.lab.podMTU; mtu != 0 {
		if err := errors.Join(p.setMTU("eth0", mtu), p.Node.setMTU(p.port, mtu)); err != nil {
			return err
		}
	}
	for _, a := range p.Addrs {
		if err := p.route(netip.Prefix{}, ofFamily(p.Node.Bridge, a)); err != nil {
			return err
		}
	}
	for _, port := range p.Ports {
		if err := p.listen(port); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) podNetwork(a netip.Addr) (netip.Prefix, error) {
	for _, p := range n.pods {
		if p.Contains(a) {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("address %v is in no pod network of node %s", a, n.Name)
}

// listen opens a port for all protocols and both families.
func (p *Pod) listen(port uint16) error {
	address := fmt.Sprintf(":%d", port)
	return p.ns.do(func() error {
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		listener, err := config.Listen(context.Background(), "tcp", address)
		if err != nil {
			return err
		}
		p.listeners = append(p.listeners, listener)
		go p.accept(listener)
		socket, err := config.ListenPacket(context.Background(), "udp", address)
		if err != nil {
			return err
		}
		p.sockets = append(p.sockets, socket)
		go p.echo(socket)
		if !p.lab.sctp {
			return nil
		}
		for _, a := range p.Addrs {
			listener, err := listenSCTP(netip.AddrPortFrom(a, port))
			if err != nil {
				return err
			}
			p.listeners = append(p.listeners, listener)
			go p.accept(listener)
		}
		return nil
	})
}

// accept answers TCP connections until the pod ends.
func (p *Pod) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		if p.ended {
			p.mu.Unlock()
			conn.Close()
			return
		}
		p.conns[conn] = struct{}{}
		p.mu.Unlock()
		go p.talk(conn)
	}
}

// talk greets a connection, then repeats the greeting for every line that comes.
func (p *Pod) talk(conn net.Conn) {
	defer func() {
		conn.Close()
		p.mu.Lock()
		delete(p.conns, conn)
		p.idle.Broadcast()
		p.mu.Unlock()
	}()
	line := p.greeting(conn.RemoteAddr())
	lines := bufio.NewScanner(conn)
	for {
		if _, err := conn.Write(line); err != nil || !lines.Scan() {
			return
		}
	}
}

// echo answers datagrams until the socket is closed, and remembers what they said.
func (p *Pod) echo(socket net.PacketConn) {
	buffer := make([]byte, 2048)
	for {
		n, peer, err := socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for an earlier answer
		}
		if line := strings.TrimSuffix(string(buffer[:n]), "\n"); line != question {
			p.mu.Lock()
			p.heard[line] = true
			p.mu.Unlock()
		}
		socket.WriteTo(p.greeting(peer), peer)
	}
}

// Heard tells whether a datagram with the Line of a Call has come, whatever became of
// the answer.
func (p *Pod) Heard(line string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard[line]
}

func (p *Pod) greeting(peer net.Addr) []byte {
	return fmt.Appendf(nil, "%s %s\n", p.Name, unmapped(peer))
}

// unmapped is the address and port of a peer; IPv4 on an IPv6 socket as IPv4.
func unmapped(peer net.Addr) netip.AddrPort {
	ap, err := netip.ParseAddrPort(peer.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// Kill ends the pod as a crash would: no goodbye to anybody, its interface gone.
func (p *Pod) Kill() error {
	if !p.lab.forget(p) {
		return nil
	}
	link, err := p.Node.links.LinkByName(p.port)
	if err == nil {
		err = p.Node.links.LinkDel(link)
	}
	p.shut()
	if err != nil {
		return fmt.Errorf("lab: pod %s: remove %s: %w", p.Name, p.port, err)
	}
	return nil
}

// Drain ends the pod as a well-behaved server does: new connections are refused,
// open ones go on until their clients close them or ctx ends; then Kill.
func (p *Pod) Drain(ctx context.Context) error {
	p.mu.Lock()
	for _, l := range p.listeners {
		l.Close()
	}
	for _, s := range p.sockets {
		s.Close()
	}
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle.Broadcast()
	})
	for len(p.conns) > 0 && ctx.Err() == nil {
		p.idle.Wait()
	}
	p.mu.Unlock()
	stop()
	return p.Kill()
}

// forget takes a pod off the lab's list; false if it was not there.
func (l *Lab) forget(p *Pod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pods[p.Name] != p {
		return false
	}
	delete(l.pods, p.Name)
	l.gone += p.packets()
	return true
}

// shut closes everything the pod holds.
func (p *Pod) shut() {
	p.mu.Lock()
	p.ended = true
	for _, l := range p.listeners {
		l.Close()
	}
	for _, s := range p.sockets {
		s.Close()
	}
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.close()
}
