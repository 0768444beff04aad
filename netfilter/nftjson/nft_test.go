package nftjson_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"portolan/internal/netnstest"
	"portolan/netfilter/nftjson"
	"portolan/netfilter/nfttext"
)

// TestRoundTrip: nft loads each ruleset, and what it lists as text and as JSON
// means the same as what was loaded.
func TestRoundTrip(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft here")
	}
	netnstest.Enter(t)
	for _, name := range []string{"kube-proxy.script", "kube-proxy.nft", "flannel.nft", "docker.nft", "firewalld.nft", "calico.nft", "slots.nft"} {
		nft(t, "flush", "ruleset")
		nft(t, "-f", filepath.Join(data, name))
		loaded, err := nfttext.Parse(name, read(t, name))
		if err != nil {
			t.Fatal(err)
		}
		text, err := nfttext.Parse("text", nft(t, "list", "ruleset"))
		if err != nil {
			t.Fatal(err)
		}
		json, err := nftjson.Parse("json", nft(t, "-j", "list", "ruleset"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range loaded.Tables {
			a, b, c := sorted(loaded.Tables[i]), sorted(text.Tables[i]), sorted(json.Tables[i])
			same(t, name+" as text", a, b)
			same(t, name+" as JSON", a, c)
		}
	}
}

func nft(t *testing.T, args ...string) string {
	t.Helper()
	var complaint strings.Builder
	cmd := exec.Command("nft", args...)
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("nft %s: %v: %s", strings.Join(args, " "), err, complaint.String())
	}
	return string(out)
}
