package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClockJumps: the clock of the wall jumps by days, forward and back. Services are
// served on, a change is in force as soon as ever, and the node stays healthy.
func TestClockJumps(t *testing.T) {
	if !inGuest() {
		t.Skip("sets the clock of the machine: only in a guest of tools/guest")
	}
	eachBackend(t, func(t *testing.T, b portolan) {
		c, clients := beginFault(t, b)
		n := c.Node("node1")
		back := func(by time.Duration) {
			now := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
			if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
				t.Fatal(err)
			}
		}
		number := 0
		for _, jump := range []time.Duration{24 * time.Hour, -72 * time.Hour, 48 * time.Hour} {
			back(jump)
			number++
			address := c.change(number, "a")
			changed := time.Now()
			if err := c.settlesFrom("pod:visitor", address, "answered a"); err != nil {
				t.Errorf("after a jump of %v: %v", jump, err)
			}
			took := time.Since(changed)
			t.Logf("after a jump of %v a change took %v", jump, took)
			if took > 10*time.Second { // in an emulated machine too
				t.Errorf("after a jump of %v a change took %v", jump, took)
			}
			if err := n.AwaitOK(t.Context(), "http://127.0.0.1:10256/healthz", nil); err != nil {
				t.Errorf("after a jump of %v: %v", jump, err)
			}
		}
		c.unhurt("clock jumps", clients)
		c.count("restart", number)
	})
}

// inGuest tells whether this machine is one that tools/guest made for the test.
func inGuest() bool {
	name, err := os.Hostname()
	first, errFirst := os.ReadFile("/proc/1/cmdline")
	words := strings.Split(string(first), "\x00")
	return err == nil && errFirst == nil && name == "guest" && len(words) > 2 && strings.HasSuffix(words[len(words)-3], "/init") && words[len(words)-2] == "inside"
}
