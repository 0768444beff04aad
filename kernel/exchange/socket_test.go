package exchange

import (
	"encoding/binary"
	"errors"
	"portolan/kernel/netlink"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns a Socket and the end that plays the kernel.
func pair(t *testing.T, patience time.Duration) (*Socket, int) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(ends[0]); unix.Close(ends[1]) })
	s, err := newSocket(ends[0], patience)
	if err != nil {
		t.Fatal(err)
	}
	return s, ends[1]
}

// message writes one as the kernel does.
func message(typ uint16, seq uint32, body []byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	m = binary.NativeEndian.AppendUint16(m, typ)
	m = binary.NativeEndian.AppendUint16(m, 0)
	m = binary.NativeEndian.AppendUint32(m, seq)
	m = binary.NativeEndian.AppendUint32(m, 0)
	m = append(m, body...)
	for len(m)&3 != 0 {
		m = append(m, 0)
	}
	return m
}

func answer(t *testing.T, fd int, datagram ...[]byte) {
	t.Helper()
	var all []byte
	for _, m := range datagram {
		all = append(all, m...)
	}
	if _, err := unix.Write(fd, all); err != nil {
		t.Fatal(err)
	}
}

func number(v int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(v)) }

// TestSilence: a kernel that never answers does not hang us, and its late answer is
// not taken for that to the next question.
func TestSilence(t *testing.T) {
	s, kernel := pair(t, 20*time.Millisecond)
	nothing := func(b []byte) { t.Errorf("an answer: %q", b) }
	if err := s.Request(100, 0, nil, nothing); !errors.Is(err, unix.ETIMEDOUT) {
		t.Fatal(err)
	}
	answer(t, kernel, message(100, 1, []byte("late")), message(unix.NLMSG_ERROR, 1, number(0)))
	answer(t, kernel, message(100, 2, []byte("good")), message(unix.NLMSG_DONE, 2, number(0)))
	got := ""
	if err := s.Request(100, 0, nil, func(b []byte) { got += string(b) }); err != nil || got != "good" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestErrors: what the kernel refuses is its error number, also at the end of a
// dump; what is no message is an error.
func TestErrors(t *testing.T) {
	s, kernel := pair(t, time.Second)
	for i, m := range [][]byte{
		message(unix.NLMSG_ERROR, 1, number(-int32(unix.ESRCH))),
		message(unix.NLMSG_DONE, 2, number(-int32(unix.ESRCH))),
	} {
		answer(t, kernel, m)
		if err := s.Request(100, 0, nil, func([]byte) {}); !errors.Is(err, unix.ESRCH) {
			t.Errorf("%d: %v", i, err)
		}
	}
	cut := message(100, 3, []byte("long"))
	binary.NativeEndian.PutUint32(cut, 1000)
	answer(t, kernel, cut)
	if err := s.Request(100, 0, nil, func([]byte) {}); err == nil {
		t.Error("a message that is cut off was taken")
	}
}

// TestAttributes: what is written is read.
func TestAttributes(t *testing.T) {
	var inner, a Attributes
	inner.Uint8(1, 7)
	inner.Net32(2|unix.NLA_F_NET_BYTEORDER, 70_000)
	a.Text(1, "name")
	a.Uint16(2, 500)
	a.Uint32(3, 80_000)
	a.Net16(4, 443)
	a.Nested(5, inner)
	got := ByType(a)
	in := ByType(got[5])
	if netlink.Text(got[1]) != "name" || Uint16(got[2]) != 500 || Uint32(got[3]) != 80_000 || Net16(got[4]) != 443 ||
		Uint8(in[1]) != 7 || Net32(in[2]) != 70_000 {
		t.Errorf("%v", got)
	}
}

// FuzzAttributes: nothing that is received can do harm.
func FuzzAttributes(f *testing.F) {
	f.Add([]byte("\x08\x00\x01\x00\x01\x02\x03\x04\x05\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for typ, value := range ByType(b) {
			if typ > 1<<14 || len(value) > len(b) {
				t.Errorf("type %d of %d bytes", typ, len(value))
			}
			_, _, _, _, _ = Uint8(value), Uint16(value), Uint32(value), Net16(value), Net32(value)
		}
	})
}
