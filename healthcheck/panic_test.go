package healthcheck

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestAPanicIsLoud: a handler that panics ends the process with the code and the text
// of a panic. The process is this program again.
func TestAPanicIsLoud(t *testing.T) {
	const role = "PORTOLAN_TEST_PANICS"
	if os.Getenv(role) != "" {
		servePanic(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestAPanicIsLoud$", "-test.timeout", "30s")
	cmd.Env = append(os.Environ(), role+"=yes")
	out, err := cmd.CombinedOutput()
	exit, is := err.(*exec.ExitError)
	if !is || exit.ExitCode() != 2 || !strings.Contains(string(out), "panic: healthcheck: GET /broken: a bug") || !strings.Contains(string(out), "panic_test.go") {
		t.Errorf("ended with %v and said\n%s", err, out)
	}
}

func servePanic(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/hang-up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/broken", func(http.ResponseWriter, *http.Request) { panic("a bug") })
	server := Server{Name: "test", Address: address, Handler: mux, Trouble: func(error) {}, retry: time.Millisecond}
	go server.Serve(t.Context())
	get := func(path string) error {
		_, err := http.Get("http://" + address + path)
		return err
	}
	for get("/") != nil { // until it listens, of which it says nothing
		time.Sleep(time.Millisecond)
	}
	if get("/hang-up") == nil {
		t.Error("hanging up was an answer")
	}
	_ = get("/broken")
	select {} // until the panic
}
