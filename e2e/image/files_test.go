package image

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The image holds what its list names and nothing else, and what its programs load is
// all there.
func TestImageFiles(t *testing.T) {
	needsRoot(t)
	folder := filepath.Join(t.TempDir(), "image")
	if out, err := exec.Command("../../deploy/image/rootfs", filepath.Join(root, "usr/local/bin/portolan"), folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := listed(t)
	programs := map[string]*elf.File{} // by their path in the image
	found := 0
	err := filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(file, folder)
		if !slices.ContainsFunc(lines, func(line string) bool { ok, _ := path.Match(line, name); return ok }) {
			t.Errorf("%s is in the image and not in its list", name)
		}
		found++
		if d.Type() == fs.ModeSymlink {
			if _, err := os.Stat(file); err != nil {
				t.Errorf("a link into nowhere: %v", err)
			}
			return nil
		}
		if program, err := elf.Open(file); err == nil {
			programs[name] = program
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if match, _ := filepath.Glob(folder + line); len(match) == 0 {
			t.Errorf("%s is in the list and not in the image", line)
		}
	}
	t.Logf("%d files, %d of them programs and libraries", found, len(programs))
	checkLibraries(t, programs)
}

// checkLibraries compares the libraries that are there with those that are needed.
func checkLibraries(t *testing.T, programs map[string]*elf.File) {
	t.Helper()
	needed := map[string]string{} // library to who needs it
	for name, program := range programs {
		libraries, err := program.ImportedLibraries()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "/usr/local/bin/portolan" && len(libraries) > 0 {
			t.Errorf("portolan is not static: it needs %v", libraries)
		}
		for _, l := range libraries {
			needed[l] = name
		}
		if i := slices.IndexFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }); i >= 0 {
			loader := make([]byte, program.Progs[i].Filesz-1) // without the zero at its end
			if _, err := program.Progs[i].ReadAt(loader, 0); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if programs[string(loader)] == nil {
				t.Errorf("%s needs the loader %s", name, loader)
			}
			needed[path.Base(string(loader))] = name
		}
	}
	for name := range programs {
		if library := path.Base(name); strings.Contains(library, ".so.") {
			if needed[library] == "" {
				t.Errorf("nobody needs %s", name)
			}
			delete(needed, library)
		}
	}
	for library, by := range needed {
		t.Errorf("%s needs %s", by, library)
	}
}

// listed are the paths and patterns of the list for this architecture.
func listed(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/image/files")
	if err != nil {
		t.Fatal(err)
	}
	library := map[string]string{"amd64": "/usr/lib/x86_64-linux-gnu", "arm64": "/usr/lib/aarch64-linux-gnu"}[runtime.GOARCH]
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if arch, rest, only := strings.Cut(line, ": "); only {
			if arch != runtime.GOARCH {
				continue
			}
			line = rest
		}
		line, _, _ = strings.Cut(line, " -> ")
		if rest, ok := strings.CutPrefix(line, "LIB/"); ok {
			line = library + "/" + rest
		}
		out = append(out, line)
	}
	return out
}

// The recipe makes the image from that list, and from nothing beside it.
func TestContainerfile(t *testing.T) {
	text, err := os.ReadFile("../../Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	stages := regexp.MustCompile(`(?m)^FROM `).Split(string(text), -1)
	last := stages[len(stages)-1]
	var copies []string
	for line := range strings.Lines(last) {
		if strings.HasPrefix(line, "COPY") || strings.HasPrefix(line, "ADD") || strings.HasPrefix(line, "RUN") {
			copies = append(copies, strings.TrimSpace(line))
		}
	}
	if !strings.HasPrefix(last, "scratch\n") || fmt.Sprint(copies) != "[COPY --from=files /rootfs /]" {
		t.Errorf("the last stage copies more than the list says:\n%s", last)
	}
	if !strings.Contains(stages[len(stages)-2], "RUN /image/rootfs /portolan /rootfs ") {
		t.Error("the list is not what is copied")
	}
}

// The program is built for the other architecture too, and static there.
func TestArchitectures(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "portolan")
	build := exec.Command("go", "build", "-o", file, "portolan/cmd/portolan")
	other, machine := "arm64", elf.EM_AARCH64
	if runtime.GOARCH == other {
		other, machine = "amd64", elf.EM_X86_64
	}
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+other)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", other, err, out)
	}
	program, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	libraries, err := program.ImportedLibraries()
	if err != nil || program.Machine != machine || len(libraries) > 0 {
		t.Errorf("%s: a program for %v that needs %v (%v)", other, program.Machine, libraries, err)
	}
}
