package iptables

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os/exec"
	"slices"
	"strings"
)

// ErrNotShown says that nothing is known of what is in a table, so that nothing
// should be written to it.
var ErrNotShown = errors.New("the table holds rules of the nft program that iptables cannot show")

// notShown recognises what iptables-nft-save 1.8.9 prints instead of a table with
// a rule that it has no words for, and names the table; it exits with 0.
func notShown(line string) (table string, is bool) {
	rest, is := strings.CutPrefix(line, "# Table `")
	if !is {
		return "", false
	}
	table, _, is = strings.Cut(rest, "' is incompatible, use 'nft' tool")
	return table, is
}

// advice says what to do about a table that is not shown.
func (t *Tool) advice(table string) string {
	family := "ip"
	if t.Family == IPv6 {
		family = "ip6"
	}
	return fmt.Sprintf("move them to a table of another name; see: nft list table %s %s", family, table)
}

// Save streams the lines of iptables-save -t table, without the newline. The
// sequence ends after its first error, which wraps ErrNotShown for a table that
// the program finds but cannot read.
func (t *Tool) Save(ctx context.Context, table string) iter.Seq2[string, error] {
	return t.run(ctx, []string{table}, "-t", table)
}

// SaveAll streams the lines of several tables as Save does, one table after the
// other, each from its line "*TABLE" on. One program lists them all, with what else
// there is: iptables-nft-save 1.8.9 reads the chains of all tables to list one, 2 s for
// 10,000 Services with 10 endpoints. A legacy table that is not loaded has to be asked
// for, which loads it.
func (t *Tool) SaveAll(ctx context.Context, tables ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var loaded []string
		for _, table := range tables {
			if t.Loaded(table) {
				loaded = append(loaded, table)
				continue
			}
			for line, err := range t.Save(ctx, table) {
				if !yield(line, err) {
					return
				}
			}
		}
		if len(loaded) == 0 {
			return
		}
		if len(loaded) == 1 && t.Variant == Legacy { // where each table costs by itself
			t.Save(ctx, loaded[0])(yield)
			return
		}
		l, err := t.begin(ctx, loaded)
		if err != nil {
			yield("", err)
			return
		}
		l.wantedLines(yield)
	}
}

// run streams what the program that lists tables says; it is an error when one of
// the wanted ones cannot be shown.
func (t *Tool) run(ctx context.Context, wanted []string, args ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		l, err := t.begin(ctx, wanted, args...)
		if err != nil {
			yield("", err)
			return
		}
		l.lines(yield)
	}
}

// listing is a program that lists tables.
type listing struct {
	tool   *Tool
	wanted []string
	what   string
	cmd    *exec.Cmd
	out    io.Reader
	stderr bytes.Buffer
	cancel context.CancelFunc
}

// begin starts the program; lines or stop has to follow.
func (t *Tool) begin(ctx context.Context, wanted []string, args ...string) (*listing, error) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	l := &listing{tool: t, wanted: wanted, cancel: cancel, what: strings.Join(append([]string{t.SaveProgram}, args...), " ")}
	l.cmd = t.command(ctx, t.SaveProgram, args...)
	l.cmd.Stderr = &l.stderr
	var err error
	if l.out, err = l.cmd.StdoutPipe(); err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("iptables: %s: %w", l.what, err)
	}
	return l, nil
}

func (l *listing) stop() {
	l.cancel()
	_ = l.cmd.Wait() // ended by us
}

// lines streams what the program says.
func (l *listing) lines(yield func(string, error) bool) {
	defer l.cancel()
	more, hidden, err := yieldLines(l.out, l.wanted, yield)
	if !more {
		l.stop()
		return
	}
	reason := ""
	if hidden != "" {
		err = errors.Join(err, ErrNotShown)
		reason = l.tool.advice(hidden)
	}
	if werr := l.cmd.Wait(); werr != nil {
		err, reason = errors.Join(err, werr), oneLine(reason+" "+l.stderr.String())
	}
	if err != nil {
		yield("", fmt.Errorf("iptables: %s: %w: %s", l.what, err, reason))
	}
}

// wantedLines is lines without what is of other tables.
func (l *listing) wantedLines(yield func(string, error) bool) {
	asked := false
	l.lines(func(line string, err error) bool {
		if table, is := strings.CutPrefix(line, "*"); is {
			asked = slices.Contains(l.wanted, table)
		}
		return !asked && err == nil || yield(line, err)
	})
}

// yieldLines tells whether the consumer wants more, which of the wanted tables is
// not shown, and how reading ended.
func yieldLines(r io.Reader, wanted []string, yield func(string, error) bool) (more bool, hidden string, err error) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 64<<10), 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		if table, is := notShown(line); is {
			if slices.Contains(wanted, table) {
				hidden = table // read on, for the program to come to its end
			}
		} else if !yield(line, nil) {
			return false, "", nil
		}
	}
	return true, hidden, scanner.Err()
}
