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
	{"IN_", "firewalld"}, {"FWD_", "firewalld"}, {"FWDI_", "firewalld"}, {"FWDO_", "firewalld"}, {"POST_", "firewalld"}, {"PRE_", "firewalld"},
	{"INPUT_", "firewalld"}, {"FORWARD_", "firewalld"}, {"OUTPUT_", "firewalld"}, {"POSTROUTING_", "firewalld"}, {"PREROUTING_", "firewalld"},
}

// tableOwners tells owners by the beginnings of the names of native tables.
var tableOwners = []struct{ prefix, owner string }{
	{"portolan", portolan}, {"kube-proxy", kubeProxy}, {"flannel-", "flannel"}, {"calico", "calico"}, {"firewalld", "firewalld"},
	{"docker-", "docker"}, {"tailscale", "tailscale"}, {"kube-router", "kube-router"}, {"kindnet", "kindnet"}, {"kube-network-policies", "kube-network-policies"},
	{"libvirt", "libvirt"}, {"netavark", "podman"}, {"fail2ban", "fail2ban"}, {"f2b-", "fail2ban"}, {"cni_", "cni-plugins"}, {"nm-", "networkmanager"},
	{"antrea", "antrea"}, {"cilium", "cilium"},
}

// commentOwners tells owners by what they write into comments.
var commentOwners = []struct{ part, owner string }{
	{"flanneld", "flannel"}, {"cali:", "calico"}, {"kubernetes", kubeProxy}, {"AWS", "aws-vpc-cni"}, {"cilium", "cilium"}, {"Antrea", "antrea"},
	{"kube-router", "kube-router"}, {"ip-masq", "ip-masq-agent"}, {"kind-masq", "kindnet"}, {"generated for", "libvirt"},
}

// interfaceOwners tells owners by the interfaces that a rule names.
var interfaceOwners = []struct{ prefix, owner string }{
	{"docker", "docker"}, {"br-", "docker"}, {"cali", "calico"}, {"flannel", "flannel"}, {"virbr", "libvirt"}, {"tailscale", "tailscale"}, {"cilium", "cilium"}, {"eni", "aws-vpc-cni"},
}

// ownerOfStep tells who wrote the rule of a step: by its table, its chain, its
// comment, the chain it leads to, or the interfaces it names.
func (w *world) ownerOfStep(s *trace.Step) Owner {
	switch {
	case s.Table == "ipvs":
		return w.ownerOfServers()
	case s.Variant == netfilter.Native:
		return w.ownerOfTable(s.Table)
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
	return Owner{admin, "the rule is in a built-in chain and bears no component's mark"}
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

// ownerOfPolicy tells who is known to set the policy of a built-in chain.
func (w *world) ownerOfPolicy(s *trace.Step) Owner {
	if s.Chain == "FORWARD" {
		for _, t := range w.host.Tables {
			if t.Name == netfilter.Filter && t.Variant == s.Variant && t.Chain("DOCKER") != nil {
				return Owner{"docker", "its chains are there, and it sets the policy of FORWARD to DROP"}
			}
		}
	}
	return Owner{admin, "policies are set by whoever configures the host"}
}

// isProxy tells whether the owner is a Service proxy.
func (o Owner) isProxy() bool { return o.Name == kubeProxy || o.Name == portolan }
