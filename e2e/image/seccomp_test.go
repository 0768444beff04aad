package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"portolan/lab"
)

// profile is a seccomp profile as the OCI runtime specification has it, as far as ours
// uses it.
type profile struct {
	DefaultAction   string
	DefaultErrnoRet uint32
	Architectures   []string
	Syscalls        []struct {
		Comment string
		Names   []string
		Action  string
		Args    []condition
	}
}

// condition is on the lower half of an argument of a system call; all numbers here are
// that small.
type condition struct {
	Index           uint32
	Value, ValueTwo uint32
	Op              string
}

// Offsets in the kernel's struct seccomp_data, and what a filter answers.
const (
	offsetNumber, offsetArch, offsetArgs = 0, 4, 16

	answerAllow, answerErrno, answerKill = 0x7fff0000, 0x00050000, 0x80000000
)

// program turns a profile into what the kernel runs, for this architecture.
func (p profile) program(numbers map[string]uint32) ([]unix.SockFilter, error) {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if p.DefaultAction != "SCMP_ACT_ERRNO" || arch == 0 {
		return nil, fmt.Errorf("default action %s on %s", p.DefaultAction, runtime.GOARCH)
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	skipUnless := func(k uint32, skip int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: uint8(skip)}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	out := []unix.SockFilter{load(offsetArch), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: arch, Jt: 1}, answer(answerKill)}
	for _, rule := range p.Syscalls {
		if rule.Action != "SCMP_ACT_ALLOW" || rule.Comment == "" {
			return nil, fmt.Errorf("a rule with action %s and comment %q", rule.Action, rule.Comment)
		}
		var check []unix.SockFilter
		for i, c := range rule.Args {
			left := 3*(len(rule.Args)-i-1) + 1 // the answer is skipped too
			switch check = append(check, load(offsetArgs+8*c.Index)); c.Op {
			case "SCMP_CMP_EQ":
				check = append(check, skipUnless(c.Value, left))
			case "SCMP_CMP_MASKED_EQ":
				check = append(check, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.Value}, skipUnless(c.ValueTwo, left))
			default:
				return nil, fmt.Errorf("operator %s", c.Op)
			}
		}
		if len(rule.Args) > 1 {
			return nil, errors.New("several conditions in one rule")
		}
		for _, name := range rule.Names {
			number, has := numbers[name]
			if !has {
				continue // on another architecture
			}
			out = append(out, load(offsetNumber), skipUnless(number, len(check)+1))
			out = append(append(out, check...), answer(answerAllow))
		}
	}
	return append(out, answer(answerErrno|p.DefaultErrnoRet)), nil
}

// install filters the system calls of this thread, and of what it starts.
func install(program []unix.SockFilter) error {
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0, 0); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

// systemCalls reads the numbers of this architecture from the module golang.org/x/sys.
func systemCalls(t *testing.T) map[string]uint32 {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zsysnum_linux_"+runtime.GOARCH+".go"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint32{}
	for _, m := range regexp.MustCompile(`(?m)^\s+SYS_(\w+)\s+= (\d+)$`).FindAllStringSubmatch(string(text), -1) {
		number, err := strconv.ParseUint(m[2], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.ToLower(m[1])] = uint32(number)
	}
	return out
}

// filter reads and compiles deploy/seccomp.
func filter(t *testing.T) []unix.SockFilter {
	t.Helper()
	text, err := os.ReadFile("../../deploy/seccomp/portolan.json")
	if err != nil {
		t.Fatal(err)
	}
	var p profile
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	numbers := systemCalls(t)
	out, err := p.program(numbers)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOARCH == "amd64" { // it has the old names too
		for _, rule := range p.Syscalls {
			for _, name := range rule.Names {
				if _, has := numbers[name]; !has {
					t.Errorf("no system call is called %s", name)
				}
			}
		}
	}
	return out
}

// With the profile of deploy/ the proxy serves in every mode.
func TestSeccompServes(t *testing.T) {
	needsRoot(t)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m.uses)
			c := w.pod(m.mode)
			c.Filter = filter(t)
			w.serves(c)
		})
	}
}

// And it carries what is sent to NodePorts on loopback, which it does itself in
// nftables mode.
func TestSeccompLoopback(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	w := newWorld(t, lab.NFT)
	c := w.pod("nftables", "nodePortAddresses: [primary, localhost]\n")
	c.Filter = filter(t)
	w.serves(c, func() {
		for _, proto := range []string{"tcp", "udp"} {
			if o := w.node.Dial(proto, netip.MustParseAddrPort("127.0.0.1:30080"), patience); o.Verdict != lab.Answered || o.Pod != "a" {
				t.Errorf("%s to 127.0.0.1:30080: %v", proto, o)
			}
		}
	})
}

// The profile refuses what a proxy has no business with. The process has all other
// rights, so that nothing else is the reason.
func TestSeccompRefuses(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	w := newWorld(t, modes[2].uses)
	for name, filter := range map[string][]unix.SockFilter{"": nil, "filtered": filter(t)} {
		c := container{Root: root, Privileged: true, Filter: filter, Try: true}
		out, err := c.command(t, w.node).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		refused := strings.Count(string(out), "refused")
		if want := map[string]int{"": 0, "filtered": len(attempts)}[name]; refused != want {
			t.Errorf("%q: %d attempts refused, wanted %d:\n%s", name, refused, want, out)
		}
	}
}

// attempts are what somebody would do who has taken over the proxy.
var attempts = map[string]func() error{
	"new namespaces": func() error { return unix.Unshare(unix.CLONE_NEWUTS) },
	"mount":          func() error { return unix.Mount("tmpfs", "/sys", "tmpfs", 0, "") },
	"chroot":         func() error { return unix.Chroot("/") },
	"host name":      func() error { return unix.Sethostname([]byte("other")) },
	"all frames": func() error {
		_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		return err
	},
	"kernel log": func() error {
		_, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
		return err
	},
	"another owner": func() error { return unix.Fchownat(unix.AT_FDCWD, "/proc/self", 0, 0, unix.AT_SYMLINK_NOFOLLOW) },
}

// try says what became of the attempts.
func try() {
	for name, attempt := range attempts {
		if err := attempt(); errors.Is(err, unix.ENOSYS) {
			fmt.Println(name, "refused")
		} else {
			fmt.Println(name, "done:", err)
		}
	}
}
