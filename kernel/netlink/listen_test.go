package netlink

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A socket that fails ends the wait with an error, and does not look like news.
func TestListenerFaults(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	l := &Listener{file: os.NewFile(uintptr(pair[0]), "fake"), buf: make([]byte, receiveSize)}
	if _, err := unix.Write(pair[1], []byte("news")); err != nil {
		t.Fatal(err)
	}
	if b, complete, err := l.Receive(t.Context()); err != nil || !complete || string(b) != "news" {
		t.Fatalf("%q %v %v", b, complete, err)
	}
	received := make(chan error)
	go func() {
		_, _, err := l.Receive(t.Context())
		received <- err
	}()
	if err := l.file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err == nil {
		t.Error("news without any")
	}
}
