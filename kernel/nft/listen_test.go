package nft

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"
)

// heard tells whether a notification waits.
func heard(t *testing.T, l *Listener) bool {
	t.Helper()
	raw, err := l.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var peeked error
	if err := raw.Control(func(fd uintptr) { _, _, peeked = unix.Recvfrom(int(fd), l.buf, unix.MSG_DONTWAIT|unix.MSG_PEEK) }); err != nil {
		t.Fatal(err)
	}
	return peeked == nil
}

// TestListen: what others change is heard, what we change is not, and neither is
// another table.
func TestListen(t *testing.T) {
	inNamespace(t)
	ours, theirs := dial(t), dial(t)
	l, err := ours.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fill := func(b *Batch) { b.AddTable(0); b.AddSet(ports("p"), 0) }
	if err := commit(t, ours, fill); err != nil {
		t.Fatal(err)
	}
	if heard(t, l) {
		t.Error("heard what we did ourselves")
	}
	other := NewBatch(Table{IPv4, "other"})
	other.AddTable(0)
	six := NewBatch(Table{IPv6, testTable.Name})
	six.AddTable(0)
	for _, b := range []*Batch{other, six} {
		if err := theirs.Commit(b); err != nil {
			t.Fatal(err)
		}
	}
	if !heard(t, l) {
		t.Fatal("heard nothing of others")
	}
	ctx, cancel := context.WithCancel(context.Background())
	returned := make(chan error, 1)
	wait := func() { returned <- l.Wait(ctx, testTable) }
	go wait()
	select {
	case err := <-returned:
		t.Errorf("woke up for other tables: %v", err)
	default:
	}
	for _, fill := range []func(*Batch){
		func(b *Batch) { b.AddElement("p", portElement(1), 0) },
		func(b *Batch) { b.DeleteTable(0) },
	} {
		if err := commit(t, theirs, fill); err != nil {
			t.Fatal(err)
		}
		if err := <-returned; err != nil {
			t.Fatal(err)
		}
		go wait()
	}
	cancel()
	for <-returned == nil { // what was left of the last transaction
		go wait()
	}
}
