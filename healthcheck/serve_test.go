package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// TestServeRetries: a taken address is tried again until it is free.
func TestServeRetries(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	troubles := make(chan error)
	ended := make(chan error)
	s := Server{Name: "test server", Address: taken.Addr().String(), retry: time.Millisecond,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }),
		Trouble: func(err error) { troubles <- err }}
	go func() { ended <- s.Serve(ctx); close(troubles) }()
	for range 2 {
		if err := <-troubles; !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	taken.Close()
	go func() {
		for range troubles { // one may be on its way
		}
	}()
	var text []byte
	for len(text) == 0 {
		answer, err := http.Get("http://" + s.Address)
		if err == nil {
			text, _ = io.ReadAll(answer.Body)
			answer.Body.Close()
		}
	}
	stop()
	if err := <-ended; err != nil || string(text) != "here" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestServeHardFail(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := Server{Name: "test server", Address: taken.Addr().String(), HardFail: true}
	if err := s.Serve(context.Background()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Error(err)
	}
}

// A process that ends while it waits for its address has no error.
func TestServeEndsWhileItWaits(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ctx, stop := context.WithCancel(context.Background())
	s := Server{Name: "test server", Address: taken.Addr().String(), Trouble: func(error) { stop() }}
	if err := s.Serve(ctx); err != nil {
		t.Error(err)
	}
}
