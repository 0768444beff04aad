package nft

import (
	"context"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"portolan/internal/netnstest"
)

// heard tells whether a notification waits.
func heard(t *testing.T, l *Listener) bool {
	t.Helper()
	raw, err := l.ear.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var peeked error
	if err := raw.Control(func(fd uintptr) {
		_, _, peeked = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT|unix.MSG_PEEK)
	}); err != nil {
		t.Fatal(err)
	}
	return peeked == nil
}

// TestListen: what others change is heard, what we change is not, and neither is
// another table.
func TestListen(t *testing.T) {
	netnstest.Enter(t)
	ours, theirs := dial(t), dial(t)
	l, err := ours.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := commit(t, ours, func(b *Batch) { b.AddTable(0); b.AddSet(ports("p"), 0) }); err != nil {
		t.Fatal(err)
	}
	if heard(t, l) {
		t.Error("heard what we did ourselves")
	}
	for _, other := range []Table{{IPv4, "other"}, {IPv6, testTable.Name}} {
		b := NewBatch(other)
		b.AddTable(0)
		if err := theirs.Commit(b); err != nil {
			t.Fatal(err)
		}
	}
	if !heard(t, l) {
		t.Fatal("heard nothing of others")
	}
	ctx, cancel := context.WithCancel(context.Background())
	type answer struct {
		Heard
		error
	}
	returned := make(chan answer, 1)
	wait := func() {
		heard, err := l.Wait(ctx, testTable)
		returned <- answer{heard, err}
	}
	go wait()
	select {
	case a := <-returned:
		t.Errorf("woke up for other tables: %v", a)
	default:
	}
	for _, step := range []struct {
		fill    func(*Batch)
		removed bool
	}{
		{func(b *Batch) { b.AddElement("p", portElement(1), 0) }, false},
		{func(b *Batch) { b.DeleteTable(0) }, true},
	} {
		if err := commit(t, theirs, step.fill); err != nil {
			t.Fatal(err)
		}
		if a := <-returned; a.error != nil || a.Removed != step.removed || a.Program != ownName(t) {
			t.Fatalf("heard %+v, want removed %v by %q", a, step.removed, ownName(t))
		}
		go wait()
	}
	cancel()
	if a := <-returned; a.error == nil {
		t.Errorf("heard %+v of nothing", a)
	}
}

// ownName is what the kernel calls this program.
func ownName(t *testing.T) string {
	t.Helper()
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(name), "\n")
}

// TestListenCommits: every transaction is heard, our own too.
func TestListenCommits(t *testing.T) {
	netnstest.Enter(t)
	ours := dial(t)
	l, err := ListenCommits()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 3 {
		if err := commit(t, ours, func(b *Batch) { b.AddTable(0); b.AddSet(ports("p"), 0) }); err != nil {
			t.Fatal(err)
		}
		if err := commit(t, ours, func(b *Batch) { b.DeleteTable(0) }); err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		if h, err := l.Commit(t.Context()); err != nil || h.Program != ownName(t) {
			t.Fatalf("heard %+v, %v", h, err)
		}
	}
	if heard(t, l) {
		t.Error("heard more than the transactions")
	}
}
