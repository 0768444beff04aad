package verify_test

import (
	"strings"
	"testing"

	"portolan/netfilter/detect"
	"portolan/trace"
	"portolan/verify"
)

// Whoever's rule stops traffic of Services is named, with how that is known.
func TestOwners(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ owner, why, edits, text, link string }{
		{"docker", "the chain is called DOCKER*", "rules add filter :DOCKER-USER - [0:0]\nrules add filter -A DOCKER-USER -d 10.244.0.0/16 -j DROP\nrules insert filter -A FORWARD -j DOCKER-USER", "", ""},
		{"docker", "it sets the policy of FORWARD to DROP", "rules drop FLANNEL-FWD\nrules add filter :DOCKER - [0:0]", "", "issues/39823"},
		{"docker", "the rule names an interface docker*", "rules insert filter -A FORWARD ! -i docker0 -d 10.244.0.0/16 -j DROP", "", ""},
		{"calico", "the chain is called cali-*", "rules add filter :cali-FORWARD - [0:0]\nrules add filter -A cali-FORWARD -d 10.244.0.0/16 -j DROP\nrules insert filter -A FORWARD -j cali-FORWARD", "", ""},
		{"calico", "the rule's comment is cali:", `rules insert filter -A FORWARD -d 10.244.0.0/16 -m comment --comment "cali:Cr3hjqB2tbbbsmwy" -j DROP`, "", ""},
		{"kubelet", "the chain is called KUBE-FIREWALL*", "rules add filter -A KUBE-FIREWALL -d 10.244.0.0/16 -j DROP\nrules insert filter -A FORWARD -j KUBE-FIREWALL", "", ""},
		{"flannel", "the chain is called FLANNEL-*", `rules change (-A FLANNEL-FWD [^\n]*) -j ACCEPT => $1 -j DROP`, "", ""},
		{"firewalld", "the chain is called FWDI_*", "rules add filter :FWDI_public - [0:0]\nrules add filter -A FWDI_public -d 10.244.0.0/16 -j REJECT\nrules insert filter -A FORWARD -j FWDI_public", "", ""},
		{"firewalld", "the table is called firewalld", "", "table inet firewalld {\n\tchain filter_FORWARD {\n\t\ttype filter hook forward priority filter + 10; policy accept;\n\t\tip daddr 10.244.0.0/16 drop\n\t}\n}\n", ""},
		{"portolan", "bears its layout", "rules add filter -A KUBE-PROXY-FIREWALL -d 10.244.0.0/16 -j DROP", "", ""},
		{"kube-proxy", "the chain is called KUBE-*", "rules drop portolan layout\nrules add filter -A KUBE-PROXY-FIREWALL -d 10.244.0.0/16 -j DROP", "", ""},
		{"admin", "bears no component's mark", "rules insert filter -A FORWARD -d 10.244.0.0/16 -j DROP", "", ""},
		{"admin", "no component is known to have a table mine", "", "table ip mine {\n\tchain x {\n\t\ttype filter hook forward priority filter + 10; policy accept;\n\t\tip daddr 10.244.0.0/16 drop\n\t}\n}\n", ""},
	} {
		in := comparedNode(t, "mode iptables", c.edits)
		if c.text != "" {
			add, err := detect.Host(detect.Options{}, detect.Text{Name: "more", Text: c.text})
			if err != nil {
				t.Fatal(err)
			}
			h := *in.Tracer.Host()
			h.Tables = append(h.Tables[:len(h.Tables):len(h.Tables)], add.Tables...)
			in.Tracer = trace.New(&h, trace.Options{Reply: true})
		}
		var found *verify.Finding
		for _, f := range verify.Verify(in).Findings {
			if f.Severity == verify.Error && (f.Code == verify.ForeignDrop || f.Code == verify.FrontendRefused) {
				found = &f
				break
			}
		}
		switch {
		case found == nil:
			t.Errorf("%s: nothing is found", c.owner)
		case found.Owner.Name != c.owner || !strings.Contains(found.Owner.Why, c.why) || !strings.HasSuffix(found.Link, c.link):
			t.Errorf("owner %s because %s, link %q; want %s because %s, link %q", found.Owner.Name, found.Owner.Why, found.Link, c.owner, c.why, c.link)
		}
	}
}
