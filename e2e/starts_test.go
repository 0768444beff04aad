package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan/lab"
)

// startsAtMost is how many programs a proxy may start in each mode until everything is
// programmed in both families, on a node without rules and at the next start;
// docs/modes.md tells what each is for. In iptables mode a full look more is allowed
// for, since others' changes are guessed at.
var startsAtMost = map[string]int{"iptables": 32, "nftables": 0, "ipvs": 5}

// TestProgramsStarted counts the programs that a proxy starts from its own start until
// many Services are in force. Their number does not matter.
func TestProgramsStarted(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		services := 20
		var args []string
		if b.mode == "ipvs" {
			services, args = 2500, []string{"--ipvs-sync-period", "1h"} // else it is looked again when this takes long
		}
		started := b.countPrograms(t)
		c := newCluster(t, b, scenario{name: "programs", topology: lab.Numbered(1, 2, 53), manifests: dualServices(services), args: args})
		last := netip.AddrPortFrom(netip.AddrFrom4(dualAddr(services-1)), 80)
		for i, when := range []string{"the first start", "the next start"} {
			if o := c.try(c.Client, lab.Call{Proto: "tcp", To: last, Timeout: patience}); o.Verdict != lab.Answered {
				t.Errorf("%s: %v", when, o)
			}
			programs := started()
			t.Logf("%s: %d Services, %d programs:\n%s", when, services, len(programs), strings.Join(programs, "\n"))
			if most := startsAtMost[b.mode]; len(programs) > most {
				t.Errorf("%s: %d programs were started, more than %d", when, len(programs), most)
			}
			if i == 1 {
				break
			}
			if err := c.stops["node1"](); err != nil {
				t.Fatal(err)
			}
			started()
			var err error
			if c.stops["node1"], err = b.Start(t.Context(), c.Node("node1"), c.dir, args, c.logs["node1"]); err != nil {
				t.Fatal(err)
			}
		}
		c.count("restart", 2)
	})
}

// countPrograms puts scripts before all programs that a proxy may start. The function
// it returns tells which were started since it was called last.
func (p *portolan) countPrograms(t *testing.T) (started func() []string) {
	t.Helper()
	p.shims = t.TempDir()
	log := filepath.Join(p.shims, "log")
	for _, v := range []lab.Variant{lab.Legacy, lab.NFT} {
		script := filepath.Join(p.shims, "count-"+string(v))
		text := fmt.Sprintf("#!/bin/sh\necho \"${0##*/} $*\" >>%s\nPATH=${PATH#*:}\nexec \"${0##*/}\" \"$@\"\n", log)
		if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, base := range []string{"iptables", "ip6tables"} {
			for _, suffix := range []string{"", "-save", "-restore"} {
				names := []string{base + "-" + string(v) + suffix}
				if v == p.variant || p.variant == lab.HostVariant && v == lab.NFT {
					names = append(names, base+suffix)
				}
				for _, name := range names {
					if err := os.Symlink(script, filepath.Join(p.shims, name)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	for _, name := range []string{"ipset", "nft", "conntrack", "modprobe", "ip", "ipvsadm"} {
		if err := os.Symlink("count-nft", filepath.Join(p.shims, name)); err != nil {
			t.Fatal(err)
		}
	}
	return func() []string {
		text, err := os.ReadFile(log)
		if err == nil {
			err = os.Remove(log)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
	}
}

// dualAddr is the cluster IP of a Service by number.
func dualAddr(n int) [4]byte { return [4]byte{10, 96, byte(16 + n/250), byte(1 + n%250)} }

// dualServices are n Services of one port with an endpoint of each family.
func dualServices(n int) []byte {
	var b strings.Builder
	for i := range n {
		v4 := netip.AddrFrom4(dualAddr(i))
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {name: dual-%[1]d, namespace: default}
spec: {clusterIP: %[2]v, clusterIPs: [%[2]v, "fd00:96::1:%[1]x"], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack, ports: [{port: 80, protocol: TCP}]}
`, i, v4)
		for _, f := range []struct{ family, addr string }{{"IPv4", "10.244.1.11"}, {"IPv6", "fd00:244:1::11"}} {
			fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: dual-%[1]d-%[2]s, namespace: default, labels: {kubernetes.io/service-name: dual-%[1]d}}
addressType: %[3]s
ports: [{name: "", protocol: TCP, port: 53}]
endpoints: [{addresses: ["%[4]s"], conditions: {ready: true, serving: true}}]
`, i, strings.ToLower(f.family), f.family, f.addr)
		}
	}
	return []byte(b.String())
}
