package verify

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
)

// stoppers says whose rule stops the packets that the rules of other makers stop, in
// ../trace/testdata/makers. Of what is not here nothing is stopped.
var stoppers = map[string]string{
	"admin-nft": "admin", "azure-npm": "azure-npm", "calico-iptables": "calico", "crowdsec-nft": "crowdsec",
	"docker-20-iptables": "docker", "docker-28-iptables": "docker", "fail2ban-iptables": "fail2ban", "fail2ban-nft": "fail2ban",
	"firewalld-iptables": "firewalld", "firewalld-nft": "firewalld", "flannel-by-nft": "admin", "flannel-iptables": "admin", "gke": "admin",
	"k3s": "kube-router", "keepalived": "admin", "kube-proxy-1.20-iptables": "kube-proxy kubelet", "kube-proxy-1.23-ipvs": "kubelet",
	"kube-proxy-1.28-by-nft": "kube-proxy", "kube-proxy-1.28-iptables": "kube-proxy", "kube-proxy-1.31-nftables": "kube-proxy",
	"kube-router": "kube-router", "kubelet": "kubelet", "libvirt-iptables": "libvirt", "libvirt-nft": "libvirt", "netavark-nft": "podman",
	"openshift-sdn": "openshift-sdn", "oracle-cloud-image": "admin", "tailscale-iptables": "tailscale", "tailscale-nft": "tailscale",
	"tailscale-by-new-nft": "tailscale", "ufw": "ufw", "weave": "weave", "wg-quick": "wg-quick",
}

// TestOwners: whose rule stops a packet is told by tables, chains, comments, interfaces.
func TestOwners(t *testing.T) {
	files, err := filepath.Glob("../trace/testdata/makers/*.txtar")
	if err != nil || len(files) < 25 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		var texts []detect.Text
		var flows string
		for _, f := range txtar.Parse(b).Files {
			if f.Name == "verdicts" {
				flows = string(f.Data)
			} else if f.Name != "rules.json" {
				texts = append(texts, detect.Text{Name: f.Name, Text: string(f.Data)})
			}
		}
		h, err := detect.Host(detect.Options{}, texts...)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{host: h}
		owners := map[string]bool{}
		for line := range strings.Lines(flows) {
			flow, verdict, _ := strings.Cut(line, " => ")
			if !strings.HasPrefix(verdict, "1 drop") && !strings.HasPrefix(verdict, "1 reject") {
				continue
			}
			o := trace.New(h, trace.Options{}).Trace(packetOf(t, flow)).Outcomes[0]
			if !o.Verdict.Lost() {
				t.Errorf("%s: %s is %s", name, flow, o.Verdict)
				continue
			}
			owner := w.ownerOfStep(&o.Steps[len(o.Steps)-1])
			if owner.Why == "" {
				t.Errorf("%s: %s without a reason", name, owner.Name)
			}
			owners[owner.Name] = true
		}
		if got := strings.Join(slices.Sorted(maps.Keys(owners)), " "); got != stoppers[name] {
			t.Errorf("%s: %q, want %q", name, got, stoppers[name])
		}
	}
}

// packetOf reads "SRC DST:PORT [PROTO] [in=IFACE]".
func packetOf(t *testing.T, text string) trace.Flow {
	t.Helper()
	words := strings.Fields(text)
	f := trace.Flow{Src: netip.MustParseAddr(words[0]), Proto: netfilter.TCP}
	to := netip.MustParseAddrPort(words[1])
	f.Dst, f.DstPort = to.Addr(), to.Port()
	for _, w := range words[2:] {
		in, found := strings.CutPrefix(w, "in=")
		if f.In = in; !found {
			t.Fatalf("flow %q: what is %q?", text, w)
		}
	}
	return f
}
