package nft

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// globalBarrier is MEMBARRIER_CMD_GLOBAL of linux/membarrier.h.
const globalBarrier = 1

// withoutBarrier is how long to wait where the kernel cannot tell.
const withoutBarrier = 100 * time.Millisecond

// WaitForPackets waits until every packet that is on its way through this host's
// rules at the call has left them: from then on nobody goes by what he saw before. It
// takes some milliseconds, more on a busy machine.
//
// The kernel keeps an RCU read lock from a packet's first hook to its last one, and
// membarrier(2) waits for all such locks (synchronize_rcu, seen up to 6.18). It cannot
// where some CPUs have no clock tick (nohz_full), and does nothing on a single CPU.
func WaitForPackets() {
	if runtime.NumCPU() > 1 {
		if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, globalBarrier, 0, 0); errno == 0 {
			return
		}
	}
	time.Sleep(withoutBarrier)
}
