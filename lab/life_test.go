package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helperEnv makes the test binary play another program: see TestMain.
const helperEnv = "PORTOLAN_LAB_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "":
		os.Exit(m.Run())
	case "hold":
		os.Exit(helperHold())
	case "user":
		os.Exit(helperUser())
	}
	panic("unknown helper " + os.Getenv(helperEnv))
}

// helperHold builds a lab with a program in it, says its process id and the
// directory, and waits to be killed.
func helperHold() int {
	l, err := New(Numbered(1, 1, 8080))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	cmd := l.Node("node1").Command(context.Background(), HostVariant, "sleep", "600")
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(cmd.Process.Pid, l.dir)
	select {}
}

// helperUser builds a lab as whoever it is, through a user namespace if need be.
func helperUser() int {
	if code, again, err := EnterUserNamespace(); err != nil || again {
		if err != nil {
			fmt.Println(err)
			return 3
		}
		return code
	}
	l, err := New(Numbered(2, 1, 8080))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer l.Close()
	fmt.Println(l.Client.Dial("tcp", at("10.244.2.11:8080"), patience))
	out, err := l.Node("node1").Command(context.Background(), HostVariant, "iptables", "-t", "nat", "-S").CombinedOutput()
	fmt.Printf("%s%v\n", out, err)
	return 7
}

// TestPodsComeAndGo: pods are added, killed and drained in a running lab, and an
// open connection outlives the start of a drain.
func TestPodsComeAndGo(t *testing.T) {
	l := newLab(t, Numbered(1, 1, 8080))
	added, err := l.AddPod(NumberedPod("late", 1, 2, 8080))
	if err != nil {
		t.Fatal(err)
	}
	late := at("10.244.1.12:8080")
	if o := l.Client.Dial("tcp", late, patience); o.Pod != "late" {
		t.Fatalf("added pod: %v", o)
	}
	if _, err := l.AddPod(NumberedPod("late", 1, 3, 8080)); err == nil {
		t.Error("a second pod of the same name was taken")
	}
	if _, err := l.AddPod(PodSpec{Name: "lost", Node: "node1", Addrs: l.Client.Addrs}); err == nil {
		t.Error("a pod with an address outside the pod networks was taken")
	}

	conn, err := l.Client.Open(t.Context(), Call{Proto: "tcp", To: late, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	if o := conn.Ask(patience); o.Pod != "late" {
		t.Fatalf("open connection: %v", o)
	}
	drained := make(chan error)
	go func() { drained <- added.Drain(context.Background()) }()
	if err := eventually(func() bool { return l.Client.Dial("tcp", late, patience).Verdict == Refused }); err != nil {
		t.Errorf("a draining pod takes connections: %v", err)
	}
	if o := conn.Ask(patience); o.Pod != "late" {
		t.Errorf("open connection to a draining pod: %v", o)
	}
	select {
	case err := <-drained:
		t.Errorf("drained with a connection open: %v", err)
	default:
	}
	conn.Close()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if err := l.Pod("pod-1-1").Kill(); err != nil {
		t.Error(err)
	}
	if o := l.Client.Dial("tcp", at("10.244.1.11:8080"), 100*time.Millisecond); o.Verdict != TimedOut {
		t.Errorf("killed pod: %v", o)
	}
	if l.Pod("pod-1-1") != nil || l.Pod("late") != nil {
		t.Error("pods that are gone are still listed")
	}
	if l.Packets() == 0 {
		t.Error("no packets were counted")
	}
}

// TestDrainIsBounded: a drain does not wait longer than its context for a client
// that stays.
func TestDrainIsBounded(t *testing.T) {
	l := newLab(t, Numbered(1, 1, 8080))
	conn, err := l.Client.Open(t.Context(), Call{Proto: "tcp", To: at("10.244.1.11:8080"), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Pod("pod-1-1").Drain(ctx); err != nil {
		t.Error(err)
	}
}

// TestCommandRunsInside: a program sees the host's interfaces and lock file, the
// chosen iptables, and ends with its context and with the lab.
func TestCommandRunsInside(t *testing.T) {
	l := newLab(t, Numbered(2, 0))
	node := l.Node("node2")
	out, err := node.Command(t.Context(), HostVariant, "ip", "-br", "addr").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "192.0.2.12/24") {
		t.Errorf("ip addr: %v\n%s", err, out)
	}
	for v, word := range map[Variant]string{Legacy: "(legacy)", NFT: "(nf_tables)"} {
		out, err := node.Command(t.Context(), v, "iptables", "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), word) {
			t.Errorf("iptables of variant %s: %v, %s", v, err, out)
		}
	}
	out, err = node.Command(t.Context(), HostVariant, "sh", "-c", "echo $XTABLES_LOCKFILE").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != l.dir+"/xtables.node2" {
		t.Errorf("lock file: %v, %s", err, out)
	}
	if err := node.Command(t.Context(), HostVariant, "no-such-program").Run(); err == nil {
		t.Error("a program that is not there ran")
	}

	ctx, cancel := context.WithCancel(t.Context())
	first := node.Command(ctx, HostVariant, "sleep", "600")
	second := node.Command(t.Context(), HostVariant, "sleep", "600")
	if err := errors.Join(first.Start(), second.Start()); err != nil {
		t.Fatal(err)
	}
	cancel()
	if first.Wait() == nil {
		t.Error("a program outlived its context")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if second.Wait() == nil {
		t.Error("a program outlived its lab")
	}
	if err := node.Command(t.Context(), HostVariant, "true").Run(); err == nil {
		t.Error("a program ran in a closed lab")
	}
}

// TestCloseLeavesNothing: after Close this machine and this process are as before,
// and Close may be called again.
func TestCloseLeavesNothing(t *testing.T) {
	before, err := Stock()
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, Numbered(2, 2, 8080))
	sleeper := l.Node("node1").Command(t.Context(), HostVariant, "sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	l.Client.Dial("tcp", at("10.244.2.11:8080"), patience)
	during, err := Stock()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"open net:", "open socket:", "child process", "working directory"} {
		if !strings.Contains(strings.Join(Left(before, during), "\n"), kind) {
			t.Errorf("stock of a running lab lists no %q", kind)
		}
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if left, err := LeftAfter(before, 5*time.Second); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// TestKilledLabLeavesNothing: when the process of a lab is killed, the programs in
// the lab die too, and the next lab removes the working directory.
func TestKilledLabLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // where no lab of anybody else sweeps
	newLab(t, Topology{})           // skips without root
	holder := exec.Command("/proc/self/exe")
	holder.Env = append(os.Environ(), helperEnv+"=hold")
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Process.Kill()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	var pid int
	var dir string
	if _, scan := fmt.Sscan(line, &pid, &dir); err != nil || scan != nil {
		t.Fatalf("helper said %q, %v", line, err)
	}
	holder.Process.Kill()
	holder.Wait()
	if err := eventually(func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }); err != nil {
		t.Errorf("the program in the lab lives on: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the test means to see the directory swept, but: %v", err)
	}
	newLab(t, Topology{})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the working directory is still there: %v", err)
	}
}

// TestOrdinaryUser: somebody who is not root gets a lab through a user namespace,
// and the exit code of the second run comes back.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becoming an ordinary user needs root")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"=user")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	switch code := cmd.ProcessState.ExitCode(); code {
	case 3:
		t.Skipf("this kernel has no user namespaces for ordinary users: %s", out)
	case 7:
	default:
		t.Fatalf("exit code %d, %v\n%s", code, err, out)
	}
	for _, want := range []string{"answered by pod-2-1", "-P PREROUTING ACCEPT"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// eventually polls until ok; an error tells that it never was.
func eventually(ok func() bool) error {
	deadline := time.Now().Add(2 * patience)
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v", 2*patience)
		}
		<-pause.C
	}
	return nil
}

// TestBridgeKeepsItsAddress: pods that come do not change the MAC of the bridge,
// which others remember.
func TestBridgeKeepsItsAddress(t *testing.T) {
	l := newLab(t, Numbered(1, 1, 8080))
	mac := func() string {
		link, err := l.Node("node1").links.LinkByName("cni0")
		if err != nil {
			t.Fatal(err)
		}
		return link.Attrs().HardwareAddr.String()
	}
	before := mac()
	for i := range 8 {
		if _, err := l.AddPod(NumberedPod(fmt.Sprintf("new-%d", i), 1, 10+i)); err != nil {
			t.Fatal(err)
		}
		if now := mac(); now != before {
			t.Fatalf("after %d pods %s, before %s", i+1, now, before)
		}
	}
}
