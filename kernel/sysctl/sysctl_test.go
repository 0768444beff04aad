package sysctl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// host makes a file system with the files of a kernel.
func host(t *testing.T, files map[string]string) Host {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Host(root)
}

const ct = "proc/sys/net/netfilter/nf_conntrack_"

// TestConntrack: the sizes and timeouts that kube-proxy writes, and what an admin
// set higher stays.
func TestConntrack(t *testing.T) {
	defaults := Conntrack{MaxPerCore: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour}
	kernel := map[string]string{
		ct + "max": "65536\n", "sys/module/nf_conntrack/parameters/hashsize": "16384\n",
		ct + "tcp_timeout_established": "432000\n", ct + "tcp_timeout_close_wait": "60\n",
		ct + "tcp_be_liberal": "0\n", ct + "udp_timeout": "30\n", ct + "udp_timeout_stream": "120\n",
	}
	for _, tt := range []struct {
		name  string
		c     Conntrack
		cpus  int
		admin map[string]string
		want  map[string]int // by end of the file's name
		kept  int
	}{
		{"defaults, 2 CPUs: min counts", defaults, 2, nil, map[string]int{"max": 131072, "hashsize": 32768, "established": 86400, "close_wait": 3600}, 0},
		{"8 CPUs", defaults, 8, nil, map[string]int{"max": 262144, "hashsize": 65536, "established": 86400, "close_wait": 3600}, 0},
		{"128 CPUs: bounded", defaults, 128, nil, map[string]int{"max": 1048576, "hashsize": 262144, "established": 86400, "close_wait": 3600}, 0},
		{"min is not bounded", Conntrack{MaxPerCore: 1, Min: 2000000}, 1, nil, map[string]int{"max": 2000000, "hashsize": 500000}, 0},
		{"0 leaves the sizes alone", Conntrack{Min: 131072}, 8, nil, map[string]int{}, 0},
		{"an admin's sizes stay", defaults, 2, map[string]string{ct + "max": "500000", "sys/module/nf_conntrack/parameters/hashsize": "125000"}, map[string]int{"established": 86400, "close_wait": 3600}, 2},
		{"an admin's timeout stays", defaults, 2, map[string]string{ct + "tcp_timeout_established": "172800"}, map[string]int{"max": 131072, "hashsize": 32768, "close_wait": 3600}, 1},
		{"a timeout that is asked for does not", Conntrack{TCPEstablished: time.Hour}, 2, map[string]string{ct + "tcp_timeout_established": "172800"}, map[string]int{"established": 3600}, 0},
		{"all others", Conntrack{TCPBeLiberal: true, UDP: 10 * time.Second, UDPStream: 200 * time.Second}, 2, nil, map[string]int{"be_liberal": 1, "udp_timeout": 10, "udp_timeout_stream": 200}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{}
			for _, m := range []map[string]string{kernel, tt.admin} {
				for name, text := range m {
					files[name] = text
				}
			}
			h := host(t, files)
			d := Plan(tt.c.Settings(tt.cpus), h.Read)
			if len(d.Unknown) > 0 || len(d.Kept) != tt.kept {
				t.Errorf("%+v", d)
			}
			done, err := h.Apply(d.Write)
			if err != nil || len(done) != len(tt.want) {
				t.Fatalf("written %+v, wanted %v, %v", done, tt.want, err)
			}
			for end, want := range tt.want {
				for _, c := range done {
					if got, err := h.Read(c.File); strings.HasSuffix(c.File, end) && (err != nil || got != want) {
						t.Errorf("%s: %d, not %d, %v", c.File, got, want, err)
					}
				}
			}
			if again := Plan(tt.c.Settings(tt.cpus), h.Read); len(again.Write) > 0 {
				t.Errorf("written again: %+v", again.Write)
			}
		})
	}
}

// What cannot be read or written is told, and everything else is done.
func TestReadOnly(t *testing.T) {
	h := host(t, map[string]string{"a": "1", "b": "no number", "d": "1"})
	settings := []Setting{{File: "a", Value: 2}, {File: "b", Value: 2}, {File: "c", Value: 2}, {File: "d", Value: 2}}
	d := Plan(settings, h.Read)
	if len(d.Unknown) != 2 || !errors.Is(d.Unknown[1], os.ErrNotExist) || !strings.Contains(d.Unknown[0].Error(), "no number") {
		t.Fatalf("%+v", d)
	}
	if err := os.Remove(h.path("a")); err != nil {
		t.Fatal(err)
	}
	done, err := h.Apply(d.Write)
	if !errors.Is(err, os.ErrNotExist) || len(done) != 1 || done[0].File != "d" {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := os.Stat(h.path("a")); err == nil {
		t.Error("a file was made")
	}
}

func TestCPUs(t *testing.T) {
	for list, want := range map[string]int{"0\n": 1, "0-3": 4, "0-3,8,10-11": 7, "": 0, "x": 0, "3-1": 0, "1-x": 0} {
		if got := CountCPUs(list); got != want {
			t.Errorf("%q: %d, not %d", list, got, want)
		}
	}
	if n := host(t, map[string]string{"sys/devices/system/cpu/online": "0-6"}).CPUs(); n != 7 {
		t.Error(n)
	}
	if n := Host(t.TempDir()).CPUs(); n < 1 {
		t.Error(n)
	}
}

// Nothing is ever lowered that may not be, and what is written is as wanted.
func TestNothingIsLowered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Setting{File: "f", Value: rapid.IntRange(-5, 5).Draw(t, "value"), Lower: Lowering(rapid.IntRange(0, 2).Draw(t, "lower")), Default: rapid.IntRange(-5, 5).Draw(t, "default")}
		now := rapid.IntRange(-5, 5).Draw(t, "now")
		d := Plan([]Setting{s}, func(string) (int, error) { return now, nil })
		for _, c := range d.Write {
			if c.Value < now && (s.Lower == Never || s.Lower == FromDefault && now != s.Default) {
				t.Fatalf("%d is lowered to %d", now, c.Value)
			}
		}
		if diff := cmp.Diff(now != s.Value, len(d.Write)+len(d.Kept) == 1); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzCountCPUs(f *testing.F) {
	f.Add("0-3,8,10-11")
	f.Fuzz(func(t *testing.T, list string) {
		if n := CountCPUs(list); n < 0 && !strings.Contains(list, "-") {
			t.Errorf("%q: %d", list, n)
		}
	})
}
