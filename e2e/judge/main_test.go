package judge

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"portolan/e2e/program"
)

// tested is the portolan under test; see TestMain.
var tested string

// seed is where everything random begins: the same in every run, so that a change
// is judged and not the luck of the draw. PORTOLAN_E2E_SEED takes another one, or
// "random".
var seed uint64 = 1

// TestMain builds the binary once, runs the tests and prints what was judged.
// PORTOLAN_E2E_BINARY names a binary to test instead.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("judge: skipped: network namespaces and their rules need root")
		return m.Run()
	}
	if text := os.Getenv("PORTOLAN_E2E_SEED"); text == "random" {
		seed = rand.Uint64N(1 << 32)
	} else if text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			fmt.Println("judge: PORTOLAN_E2E_SEED:", err)
			return 1
		}
	}
	fmt.Printf("judge: seed %d (PORTOLAN_E2E_SEED=%d repeats this run)\n", seed, seed)
	path, remove, err := program.Binary()
	if err != nil {
		fmt.Println("judge:", err)
		return 1
	}
	defer remove()
	tested = path
	code := m.Run()
	fmt.Print(summary.String())
	fmt.Printf("judge: seed %d\n", seed)
	return code
}

// filtered tells whether single tests were named, so that not all cases ran.
func filtered() bool {
	return strings.Contains(flag.Lookup("test.run").Value.String()+flag.Lookup("test.skip").Value.String(), "/")
}

// summary is what the tests want to be printed at the end.
var summary lines

type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.WriteString(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
