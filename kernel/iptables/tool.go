package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Family is an IP family: 4 or 6.
type Family uint8

// The two families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Variant is which part of the kernel the programs talk to.
type Variant string

// The variants of iptables since 1.8. Legacy is also what came before.
const (
	Legacy Variant = "legacy" // ip_tables, x_tables
	NFT    Variant = "nft"    // nf_tables through compatible expressions
)

// Bounds on how long a call may take, lock included. They are there so that a
// program that hangs is noticed, not to limit the work: iptables-nft-save 1.8.9
// was seen to take 13 s for 33,000 chains, and the square of that.
const (
	lockSeconds    = 5
	restoreTimeout = 20 * time.Minute
	saveTimeout    = 20 * time.Minute
)

// Tool is the iptables programs of one family and variant.
type Tool struct {
	Family  Family
	Variant Variant
	Version Version
	// RestoreProgram and SaveProgram are names or paths.
	RestoreProgram, SaveProgram string
	// Env is added to the environment of the programs ("XTABLES_LOCKFILE=...").
	Env []string
}

// NewTool returns the tool of a variant by its usual program names, without
// looking for them. The version is taken to be recent.
func NewTool(f Family, v Variant) *Tool {
	base := "iptables"
	if f == IPv6 {
		base = "ip6tables"
	}
	base += "-" + string(v)
	return &Tool{Family: f, Variant: v, Version: Version{1, 8, 9}, RestoreProgram: base + "-restore", SaveProgram: base + "-save"}
}

// Version is major, minor, patch.
type Version [3]int

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// AtLeast compares versions.
func (v Version) AtLeast(o Version) bool {
	for i := range v {
		if v[i] != o[i] {
			return v[i] > o[i]
		}
	}
	return true
}

// RandomFully tells whether MASQUERADE knows --random-fully.
func (t *Tool) RandomFully() bool { return t.Version.AtLeast(Version{1, 6, 2}) }

// waitArgs make the program wait for the xtables lock, for a bounded time.
func (t *Tool) waitArgs() []string {
	if t.Version.AtLeast(Version{1, 6, 2}) {
		return []string{"-w", strconv.Itoa(lockSeconds)}
	}
	return nil
}

// RestoreError is a restore that did not succeed. Sections (tables) before the
// one at fault may have been committed.
type RestoreError struct {
	Program string
	// Line of the input at fault, from 1; 0 when none was named. The legacy
	// program names the COMMIT line for what only the kernel refuses.
	Line int
	Text string // of that line
	// Refused tells whether the input is to blame: false for a lock that could
	// not be had, a missing program or right, or a time limit.
	Refused bool
	Stderr  string
	Err     error
}

func (e *RestoreError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "iptables: %s: %v", e.Program, e.Err)
	if e.Stderr != "" {
		fmt.Fprintf(&b, ": %s", e.Stderr)
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, " (line %d: %s)", e.Line, e.Text)
	}
	return b.String()
}

func (e *RestoreError) Unwrap() error { return e.Err }

// Restore feeds text to iptables-restore --noflush --counters. Each table in it
// is taken as a whole or not at all. Errors are of type *RestoreError.
func (t *Tool) Restore(ctx context.Context, text []byte) error {
	return t.RestoreFrom(ctx, func(w io.Writer) error { _, err := w.Write(text); return err })
}

// RestoreFrom is Restore of what write writes, which is never held as a whole. It is
// called once more when a line is at fault, for that line's text.
func (t *Tool) RestoreFrom(ctx context.Context, write func(io.Writer) error) error {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	cmd := t.command(ctx, t.RestoreProgram, append(t.waitArgs(), "--noflush", "--counters")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := feed(cmd, write)
	if err == nil {
		return nil
	}
	e := &RestoreError{Program: t.RestoreProgram, Stderr: oneLine(stderr.String()), Err: err}
	e.Line = errorLine(stderr.String())
	e.Text = lineOf(write, e.Line)
	e.Refused = refused(err, e.Line, stderr.String())
	if ctx.Err() != nil {
		e.Err, e.Refused = ctx.Err(), false
	}
	return e
}

func (t *Tool) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	cmd.Env = append(cmd.Env, t.Env...)
	cmd.WaitDelay = 5 * time.Second
	// What is left of a killed proxy must not write what the next one knows better.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Forms of messages seen with 1.8.9: "Error occurred at line: 3",
// "iptables-restore: line 4 failed", and from the nft variant
// "line 3: RULE_APPEND failed (Invalid argument): rule in chain X".
var lineNumber = regexp.MustCompile(`(?:Error occurred at line: |(?:^|: )line )(\d+)(?:$|:| failed)`)

// errorLine is the number of the line that a restore program blames, 0 for none.
func errorLine(stderr string) int {
	for line := range strings.Lines(stderr) {
		if m := lineNumber.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			n, err := strconv.Atoi(m[1])
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// refused tells a bad input from bad circumstances. Exit status 4 alone does
// not: the nft variant uses it for refused rules, both use it for the lock.
func refused(err error, line int, stderr string) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !exit.Exited() {
		return false
	}
	for _, circumstance := range []string{"xtables lock", "Permission denied", "you must be root", "Resource temporarily unavailable", "Cannot allocate memory"} {
		if strings.Contains(stderr, circumstance) {
			return false
		}
	}
	return line > 0 || exit.ExitCode() == 1 || exit.ExitCode() == 2
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// feed runs a program on what write writes. Why a program ended before it had read
// everything, its exit tells.
func feed(cmd *exec.Cmd, write func(io.Writer) error) error {
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	written := errors.Join(write(in), in.Close())
	if err := cmd.Wait(); err != nil {
		return err
	}
	return written
}

// lineOf is line n of what write writes, from 1; empty when there is none.
func lineOf(write func(io.Writer) error, n int) string {
	if n < 1 {
		return ""
	}
	l := oneLineOf{left: n - 1}
	if err := write(&l); err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return string(l.text)
}

// oneLineOf keeps one line of what is written to it, and has enough then.
type oneLineOf struct {
	left int // lines before it
	text []byte
}

// Write ends with io.EOF when the line is whole.
func (l *oneLineOf) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if l.left == 0 {
			l.text = append(l.text, line...)
			if ended {
				return 0, io.EOF
			}
			return len(b), nil
		}
		if ended {
			l.left--
		}
		rest = after
	}
	return len(b), nil
}
