package agent

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file is written, replaced and removed; what is no file stays as it is.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "new", "subnet.env")
	for _, text := range []string{"one\n", "two\n"} {
		if err := writeFile(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	for range 2 {
		if err := removeFile(file); err != nil {
			t.Error(err)
		}
	}
	socket := filepath.Join(dir, "socket")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(socket, link); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{dir: "folder", socket: "socket", link: "socket"} {
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{"write": writeFile(path, []byte("x")), "remove": removeFile(path)} {
			if err == nil || !strings.Contains(err.Error(), path+" is a") || !strings.Contains(err.Error(), kind) {
				t.Errorf("%s %s: %v", what, path, err)
			}
		}
		if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s is %v now: %v", path, after, err)
		}
	}
}
