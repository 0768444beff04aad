package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemd understands every line of the unit, and finds little left to take away.
func TestSystemdUnit(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze on this machine (package systemd)")
	}
	const unit = "../../deploy/systemd/portolan-proxy.service"
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	check := func(name, text string) (string, error) {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", "verify", file).CombinedOutput()
		return string(out), err
	}
	here := strings.ReplaceAll(string(text), "/usr/local/bin/portolan", filepath.Join(root, "usr/local/bin/portolan"))
	if out, err := check("portolan-proxy.service", here); err != nil || out != "" {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if out, _ := check("portolan-wrong.service", strings.Replace(here, "ProtectClock", "ProtectClocks", 1)); !strings.Contains(out, "ProtectClocks") {
		t.Errorf("a misspelt line is taken too: verify proves nothing\n%s", out)
	}
	// 2.0 of 10; units of a distribution mostly have 9.
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=20", unit).CombinedOutput()
	if err != nil {
		t.Errorf("security: %v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Log(lines[len(lines)-1])
}
