package lab

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
)

// Verdict is what became of one try to reach an address.
type Verdict int

const (
	TimedOut    Verdict = iota // nothing came back
	Answered                   // a pod said its name
	Refused                    // an ICMP port unreachable or a TCP reset came back
	Unreachable                // another ICMP error: no node answers for the address, or the pod is gone
	Failed                     // anything else; Outcome.Err says what
)

func (v Verdict) String() string {
	switch v {
	case TimedOut:
		return "timeout"
	case Answered:
		return "answered"
	case Refused:
		return "refused"
	case Unreachable:
		return "unreachable"
	case Failed:
		return "failed"
	}
	panic(fmt.Sprintf("lab: verdict %d", int(v)))
}

// Outcome is what one try saw. Pod and Seen are set when it was answered: who
// answered, and the source address the pod saw.
type Outcome struct {
	Verdict Verdict
	Pod     string
	Seen    netip.AddrPort
	Local   netip.AddrPort // of the caller's socket; zero when no socket came about
	Err     error
}

func (o Outcome) String() string {
	switch o.Verdict {
	case Answered:
		return fmt.Sprintf("answered by %s, which saw %v", o.Pod, o.Seen)
	case Failed:
		return fmt.Sprintf("failed: %v", o.Err)
	}
	return o.Verdict.String()
}

// Call is one try: Proto is "tcp", "udp" or "sctp", From and Port are the source (of the zero
// Addr and of port 0 the kernel chooses one). Line is what a datagram says; see Pod.Heard.
type Call struct {
	Proto   string
	From    netip.Addr
	Port    uint16
	To      netip.AddrPort
	Timeout time.Duration
	Line    string
}

// Dial makes a try with the source that the kernel chooses.
func (h *Host) Dial(proto string, to netip.AddrPort, timeout time.Duration) Outcome {
	return h.Try(Call{Proto: proto, To: to, Timeout: timeout})
}

// Try calls an address, reads the one line a pod says, and hangs up.
func (h *Host) Try(call Call) Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), call.Timeout)
	defer cancel()
	conn, err := h.open(ctx, call)
	if err != nil {
		return OutcomeOf(err)
	}
	defer conn.Close()
	return conn.say(ctx, cmp.Or(call.Line, question))
}

// question is what is said when there is nothing to say.
const question = "?"

// Conn is an open conversation with a pod.
type Conn struct {
	net.Conn
	lines *bufio.Reader
	datagram,
	greeted bool
}

// Open connects and leaves the connection open; Ask talks over it.
func (h *Host) Open(ctx context.Context, call Call) (*Conn, error) {
	if call.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, call.Timeout)
		defer cancel()
	}
	return h.open(ctx, call)
}

// open connects from inside the host, from an address and a port of its own where the
// call names them.
func (h *Host) open(ctx context.Context, call Call) (*Conn, error) {
	if call.Proto == "sctp" {
		var conn net.Conn
		err := h.ns.do(func() (err error) {
			conn, err = dialSCTP(ctx, netip.AddrPortFrom(call.From, call.Port), call.To)
			return err
		})
		if err != nil {
			return nil, err
		}
		return &Conn{Conn: conn, lines: bufio.NewReader(conn)}, nil
	}
	var dialer net.Dialer
	if call.From.IsValid() || call.Port != 0 {
		source := net.TCPAddr{IP: call.From.AsSlice(), Port: int(call.Port)}
		dialer.LocalAddr = &source
		if call.Proto == "udp" {
			dialer.LocalAddr = &net.UDPAddr{IP: source.IP, Port: source.Port}
		}
	}
	conn, err := h.dialContext(ctx, dialer, call.Proto, call.To.String())
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: conn, lines: bufio.NewReader(conn), datagram: call.Proto == "udp"}, nil
}

// DialContext connects from inside the host; address is an IP and a port. It fits
// http.Transport.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return h.dialContext(ctx, net.Dialer{}, network, address)
}

// dialContext connects from within the namespace of the host.
func (h *Host) dialContext(ctx context.Context, dialer net.Dialer, network, address string) (net.Conn, error) {
	// A literal address keeps the dialer in this goroutine, and so in the namespace.
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("lab: dial from %s: %w", h.Name, err)
	}
	var conn net.Conn
	err := h.ns.do(func() (err error) {
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Ask says a line and hears the pod's. The first Ask of a TCP connection only
// listens: pods greet.
func (c *Conn) Ask(timeout time.Duration) Outcome { return c.Say(question, timeout) }

// Say is Ask with a line of one's own.
func (c *Conn) Say(line string, timeout time.Duration) Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.say(ctx, line)
}

// say sends a line and reads who answers. A TCP connection is greeted unasked, so that the
// first line is not sent.
func (c *Conn) say(ctx context.Context, said string) Outcome {
	deadline, _ := ctx.Deadline()
	c.SetDeadline(deadline)
	if c.datagram || c.greeted {
		// A datagram that a rule of this very host stops fails with EPERM, refused or
		// dropped alike; which of the two, only the socket's error queue tells.
		if _, err := c.Write([]byte(said + "\n")); err != nil && !errors.Is(err, syscall.EPERM) {
			return OutcomeOf(c.cause(err))
		}
	}
	line, err := c.lines.ReadString('\n')
	if err != nil {
		return OutcomeOf(c.cause(err))
	}
	c.greeted = true
	pod, seen, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	peer, err := netip.ParseAddrPort(seen)
	if err != nil {
		return Outcome{Verdict: Failed, Err: fmt.Errorf("lab: answer %q is not that of a pod", line)}
	}
	return Outcome{Verdict: Answered, Pod: pod, Seen: peer, Local: unmapped(c.LocalAddr())}
}

// cause is what the kernel has to say about a socket that Go (1.26) finds "not
// pollable": so it calls one whose ICMP error came while it waited to read.
func (c *Conn) cause(err error) error {
	socket, is := c.Conn.(syscall.Conn)
	if !is || !strings.Contains(err.Error(), "not pollable") {
		return err
	}
	raw, problem := socket.SyscallConn()
	if problem != nil {
		return err
	}
	pending := 0
	problem = raw.Control(func(fd uintptr) {
		pending, problem = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
	})
	if problem != nil || pending == 0 {
		return err
	}
	return fmt.Errorf("%w: %w", err, syscall.Errno(pending))
}

// OutcomeOf is what an error of Open says of the try.
func OutcomeOf(err error) Outcome {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Outcome{Verdict: Refused, Err: err}
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EACCES):
		// Prohibited is EHOSTUNREACH in IPv4 and EACCES in IPv6.
		return Outcome{Verdict: Unreachable, Err: err}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return Outcome{Verdict: TimedOut, Err: err}
	}
	return Outcome{Verdict: Failed, Err: err}
}
