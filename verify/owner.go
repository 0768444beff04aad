package verify

import (
	"strings"

	"portolan/netfilter"
	"portolan/trace"
)

// Owner is who wrote a rule, and how that was inferred. The zero Owner stands
// for nobody in particular.
type Owner struct{ Name, Why string }

// The owners that are told apart by more than a prefix.
const (
	kubeProxy = "kube-proxy"
	portolan  = "portolan"
	admin     = "admin"
)

// chainOwners tells owners by the beginnings of chain names. The first that fits
// is taken.
var chainOwners = []struct{ prefix, owner string }{
	{"KUBE-FIREWALL", "kubelet"}, {"KUBE-KUBELET-CANARY", "kubelet"}, {"KUBE-IPTABLES-HINT", "kubelet"},
	{"KUBE-ROUTER-", "kube-router"}, {"KUBE-NWPLCY-", "kube-router"}, {"KUBE-POD-FW-", "kube-router"}, {"KUBE-DST-", "kube-router"}, {"KUBE-SRC-", "kube-router"},
	{"KUBE-", kubeProxy},
	{"FLANNEL-", "flannel"}, {"cali-", "calico"}, {"CILIUM_", "cilium"}, {"ANTREA-", "antrea"}, {"WEAVE", "weave"},
	{"AWS-", "aws-vpc-cni"}, {"IP-MASQ", "ip-masq-agent"}, {"KIND-MASQ-AGENT", "kindnet"},
	{"CNI-", "cni-plugins"}, {"NETAVARK", "podman"}, {"DOCKER", "docker"}, {"LIBVIRT_", "libvirt"},
	{"ts-", "tailscale"}, {"ufw-", "ufw"}, {"ufw6-", "ufw"}, {"f2b-", "fail2ban"}, {"ISTIO_", "istio"}, {"PROXY_INIT_", "linkerd"},
	{"AZURE-NPM", "azure-npm"}, {"OVN-KUBE-", "ovn-kubernetes"}, {"OVN-", "kube-ovn"}, {"OPENSHIFT-", "openshift-sdn"}, {"CROWDSEC", "crowdsec"},
	{"IN_", "firewalld"}, {"FWD_", "firewalld"}, {"FWDI_", "firewalld"}, {"FWDO_", "firewalld"}, {"POST_", "firewalld"}, {"PRE_", "firewalld"},
	{"INPUT_", "firewalld"}, {"FORWARD_", "firewalld"}, {"OUTPUT_", "firewalld"}, {"POSTROUTING_", "firewalld"}, {"PREROUTING_", "firewalld"},
}

// tableOwners tells owners by the beginnings of the names of native tables.
var tableOwners = []struct{ prefix, owner string }{
	{"portolan", portolan}, {"kube-proxy", kubeProxy}, {"flannel-", "flannel"}, {"calico", "calico"}, {"firewalld", "firewalld"},
	{"docker-", "docker"}, {"tailscale", "tailscale"}, {"kube-router", "kube-router"}, {"kindnet", "kindnet"}, {"kube-network-policies", "kube-network-policies"},
	{"libvirt", "libvirt"}, {"netavark", "podman"}, {"fail2ban", "fail2ban"}, {"f2b-", "fail2ban"}, {"cni_", "cni-plugins"}, {"nm-", "networkmanager"},
	{"antrea", "antrea"}, {"cilium", "cilium"}, {"ovn-kubernetes", "ovn-kubernetes"}, {"crowdsec", "crowdsec"}, {"lxd", "lxd"}, {"incus", "incus"},
}

// commentOwners tells owners by what they write into comments.
var commentOwners = []struct{ part, owner string }{
	{"flanneld", "flannel"}, {"cali:", "calico"}, {"kubernetes", kubeProxy}, {"AWS", "aws-vpc-cni"}, {"cilium", "cilium"}, {"Antrea", "antrea"},
	{"kube-router", "kube-router"}, {"ip-masq", "ip-masq-agent"}, {"kind-masq", "kindnet"}, {"generated for", "libvirt"}, {"wg-quick", "wg-quick"},
}

// interfaceOwners tells owners by the interfaces that a rule names.
var interfaceOwners = []struct{ prefix, owner string }{
	{"docker", "docker"}, {"br-", "docker"}, {"cali", "calico"}, {"flannel", "flannel"}, {"virbr", "libvirt"}, {"tailscale", "tailscale"}, {"cilium", "cilium"}, {"eni", "aws-vpc-cni"}, {"weave", "weave"},
}

// ownerOfStep tells who wrote the rule of a step: by its table, its chain, its
// comment, the chain it leads to, or the interfaces it names.
func (w *world) ownerOfStep(s *trace.Step) Owner {
	switch {
	case s.Table == "ipvs":
		return w.ownerOfServers()
	case s.Variant == netfilter.Native:
		return w.ownerInTable(s)
	}
	if o := w.ownerOfChain(s.Chain); o.Name != "" {
		return o
	}
	if s.Rule == 0 {
		return w.ownerOfPolicy(s)
	}
	if o := w.ownerOfChain(s.Target); o.Name != "" {
		return Owner{o.Name, "the rule leads to chain " + s.Target}
	}
	for _, c := range commentOwners {
		if strings.Contains(s.Comment, c.part) {
			return Owner{c.owner, "the rule's comment is " + s.Comment}
		}
	}
	for _, i := range interfaceOwners {
		if strings.Contains(s.Text, " -i "+i.prefix) || strings.Contains(s.Text, " -o "+i.prefix) {
			return Owner{i.owner, "the rule names an interface " + i.prefix + "*"}
		}
	}
	if o := w.ownerOfBuiltIn(s); o.Name != "" {
		return o
	}
	return Owner{admin, "the rule is in a built-in chain and bears no component's mark"}
}

// ownerInTable tells who wrote a rule of a native table. Those of iptables-nft, which
// nft lists too, and tables that several programs share tell it by their chains.
func (w *world) ownerInTable(s *trace.Step) Owner {
	o := w.ownerOfTable(s.Table)
	if o.Name == admin {
		if byChain := w.ownerOfChain(s.Chain); byChain.Name != "" {
			return byChain
		}
	}
	return o
}

// ownerOfTable tells who made a native table.
func (w *world) ownerOfTable(table string) Owner {
	_, name, _ := strings.Cut(table, " ")
	for _, t := range tableOwners {
		if strings.HasPrefix(name, t.prefix) {
			return Owner{t.owner, "the table is called " + name}
		}
	}
	return Owner{admin, "no component is known to have a table " + name}
}

// ownerOfChain tells who made a chain of iptables, the zero Owner if its name
// does not say.
func (w *world) ownerOfChain(chain string) Owner {
	for _, c := range chainOwners {
		if !strings.HasPrefix(chain, c.prefix) {
			continue
		}
		if c.owner == kubeProxy && w.ours != "" {
			return Owner{portolan, w.ours}
		}
		return Owner{c.owner, "the chain is called " + c.prefix + "*"}
	}
	return Owner{}
}

// builtInOwners are programs that set policies of built-in chains, or end these with
// rules of their own; a chain of theirs gives them away.
var builtInOwners = []struct{ chain, owner, why string }{
	{"ufw-before-input", "ufw", "its chains are there, and it sets the policies of the built-in ones"},
	{"INPUT_ZONES", "firewalld", "its chains are there, and it ends the built-in ones with a refusal"},
}

// ownerOfBuiltIn tells who is known to write into the built-in chains of a table, the
// zero Owner if nobody is.
func (w *world) ownerOfBuiltIn(s *trace.Step) Owner {
	for _, t := range w.host.Tables {
		if t.Name != s.Table || t.Variant != s.Variant {
			continue
		}
		for _, b := range builtInOwners {
			if t.Chain(b.chain) != nil {
				return Owner{b.owner, b.why}
			}
		}
		if s.Rule == 0 && s.Chain == "FORWARD" && t.Name == netfilter.Filter && t.Chain("DOCKER") != nil {
			return Owner{"docker", "its chains are there, and it sets the policy of FORWARD to DROP"}
		}
	}
	return Owner{}
}

// ownerOfPolicy tells who is known to set the policy of a built-in chain.
func (w *world) ownerOfPolicy(s *trace.Step) Owner {
	if o := w.ownerOfBuiltIn(s); o.Name != "" {
		return o
	}
	return Owner{admin, "policies are set by whoever configures the host"}
}

// isProxy tells whether the owner is a Service proxy.
func (o Owner) isProxy() bool { return o.Name == kubeProxy || o.Name == portolan }
