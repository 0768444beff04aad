package nft

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"portolan/internal/netnstest"
	"portolan/kernel/netlink"
)

// fakeKernel is the other end of a Conn; it answers each request with what the next of
// the answers makes of its sequence number, in one datagram each.
func fakeKernel(t *testing.T, answers ...func(seq uint32) []byte) *Conn {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		request := make([]byte, 4096)
		for _, answer := range answers {
			n, err := unix.Read(pair[1], request)
			if err != nil || n < netlink.HeaderSize {
				return
			}
			if text := answer(binary.NativeEndian.Uint32(request[8:])); text != nil {
				if _, err := unix.Write(pair[1], text); err != nil {
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		unix.Shutdown(pair[1], unix.SHUT_RDWR)
		<-over
		unix.Close(pair[0])
		unix.Close(pair[1])
	})
	return &Conn{socket: netlink.On(pair[0])}
}

// reply makes one message.
func reply(kind, flags uint16, seq uint32, body ...byte) []byte {
	b := make([]byte, netlink.HeaderSize, netlink.HeaderSize+len(body))
	binary.NativeEndian.PutUint32(b, uint32(netlink.HeaderSize+len(body)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], flags)
	binary.NativeEndian.PutUint32(b[8:], seq)
	return append(b, body...)
}

func failure(errno unix.Errno) func(uint32) []byte {
	return func(seq uint32) []byte {
		body := binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno)))
		return reply(unix.NLMSG_ERROR, 0, seq, body...)
	}
}

// tables is the answer to a question for tables: one of that name, and the end.
func tables(name string, flags uint16) func(uint32) []byte {
	return func(seq uint32) []byte {
		w := netlink.Writer{Buf: []byte{byte(IPv4), 0, 0, 0}}
		w.Text(unix.NFTA_TABLE_NAME, name)
		return append(reply(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, flags, seq, w.Buf...), reply(unix.NLMSG_DONE, flags, seq, 0, 0, 0, 0)...)
	}
}

func raw(text string) func(uint32) []byte { return func(uint32) []byte { return []byte(text) } }

func nothing(uint32) []byte { return nil }

// TestNetlinkFaults: what goes wrong between us and the kernel is an error, or is
// tried again; it is never taken for an answer, and the next question is answered.
func TestNetlinkFaults(t *testing.T) {
	late := tables("late", 0)
	for name, c := range map[string]struct {
		answers []func(uint32) []byte
		err     error  // that is wrapped
		says    string // in the error
	}{
		"no right":                  {[]func(uint32) []byte{failure(unix.EPERM)}, unix.EPERM, "list tables of family ip"},
		"no memory":                 {[]func(uint32) []byte{failure(unix.ENOMEM)}, unix.ENOMEM, ""},
		"no answer":                 {[]func(uint32) []byte{nothing}, nil, "no answer from the kernel"},
		"garbage":                   {[]func(uint32) []byte{raw("garbage, and more of it than a header has")}, nil, "no answer from the kernel"},
		"half a header":             {[]func(uint32) []byte{raw("\x10\x00")}, nil, "no answer from the kernel"},
		"the answer to another one": {[]func(uint32) []byte{func(seq uint32) []byte { return late(seq + 7) }}, nil, "no answer from the kernel"},
		"too much at once":          {[]func(uint32) []byte{raw(strings.Repeat("x", 64<<10+1))}, nil, "does not fit"},
		"interrupted":               {[]func(uint32) []byte{failure(unix.EINTR), tables("t", 0)}, nil, ""},
		"torn":                      {[]func(uint32) []byte{tables("old", unix.NLM_F_DUMP_INTR), tables("old", unix.NLM_F_DUMP_INTR), tables("t", 0)}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn := fakeKernel(t, append(c.answers, tables("next", 0))...)
			got, err := conn.Tables(IPv4)
			wrong := c.err != nil || c.says != ""
			switch {
			case !wrong && (err != nil || len(got) != 1 || got[0] != "t"):
				t.Errorf("tables %q, %v", got, err)
			case wrong && (err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("tables %q, %v", got, err)
			}
			if next, err := conn.Tables(IPv4); err != nil || len(next) != 1 || next[0] != "next" {
				t.Errorf("the next question: %q, %v", next, err)
			}
		})
	}
}

// TestMoreErrorsThanRoom: a kernel that has more to say than the socket holds leaves
// an error, and nothing that the next answer is taken for.
func TestMoreErrorsThanRoom(t *testing.T) {
	netnstest.Enter(t)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 2048); err != nil {
		t.Fatal(err)
	}
	c := &Conn{socket: netlink.On(fd)}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := commit(t, c, func(b *Batch) { b.AddTable(0) }); err != nil {
		t.Fatal(err)
	}
	err = commit(t, c, func(b *Batch) {
		for i := range 1000 {
			b.DeleteSet("missing", i)
		}
	})
	var refused *BatchError
	if !errors.As(err, &refused) {
		t.Fatalf("%v", err)
	}
	if n := len(refused.Refused); n == 1000 {
		t.Fatal("there was room for all: the test shows nothing")
	}
	for _, r := range refused.Refused {
		if r.Err != unix.ENOENT || !r.Certain {
			t.Errorf("%+v", r)
		}
	}
	if err := commit(t, c, func(b *Batch) { b.AddChain(Chain{Name: "next"}, 0) }); err != nil {
		t.Errorf("the next batch: %v", err)
	}
	if there, err := c.HasChain(testTable, "next"); err != nil || !there {
		t.Errorf("chain of the next batch: %v, %v", there, err)
	}
}

// TestDumpWhileOthersWrite: a dump during which others change their tables comes to an
// end, and says what is there of ours.
func TestDumpWhileOthersWrite(t *testing.T) {
	netnstest.Enter(t)
	c, other := dial(t), dial(t)
	const elements = 20_000
	err := commit(t, c, func(b *Batch) {
		b.AddTable(0)
		// As large as it gets: while the kernel makes a hash table larger, a dump misses some.
		b.AddSet(Set{Name: "many", KeyType: TypeClassID, KeyLen: 4, Size: elements}, 0)
		for i := range elements {
			b.AddElement("many", Element{Key: binary.BigEndian.AppendUint32(nil, uint32(i))}, 0)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			b := NewBatch(Table{IPv4, "other"})
			b.AddTable(0)
			b.DeleteTable(0)
			if err := other.Commit(b); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 5 {
		seen := map[string]bool{}
		err := c.Elements(testTable, "many", func() { clear(seen) }, func(e Element) { seen[string(e.Key)] = true })
		if err != nil || len(seen) != elements {
			t.Errorf("%d elements of %d, %v", len(seen), elements, err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
