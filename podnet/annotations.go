package podnet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
)

// DefaultPrefix is the prefix of flannel's Node annotations.
const DefaultPrefix = "flannel.alpha.coreos.com"

// Annotations are the names of the Node annotations by which the members of a
// pod network know each other.
type Annotations struct{ prefix string }

var annotationPrefix = regexp.MustCompile(`^(?:[a-z0-9_-]+\.)+[a-z0-9_-]+/(?:[a-z0-9_-]+-)?$`)

// NewAnnotations returns the names with a prefix "fqdn" or "fqdn/word", as
// flannel's --kube-annotation-prefix.
func NewAnnotations(prefix string) (Annotations, error) {
	full := prefix
	if !strings.Contains(full, "/") {
		full += "/"
	}
	if !strings.HasSuffix(full, "/") && !strings.HasSuffix(full, "-") {
		full += "-"
	}
	if !annotationPrefix.MatchString(full) {
		return Annotations{}, fmt.Errorf("podnet: annotation prefix %q is not of the form fqdn or fqdn/word, for example %s", prefix, DefaultPrefix)
	}
	return Annotations{full}, nil
}

func (a Annotations) managed() string     { return a.prefix + "kube-subnet-manager" }
func (a Annotations) backendType() string { return a.prefix + "backend-type" }

func (a Annotations) backendData(f Family) string {
	if f == IPv6 {
		return a.prefix + "backend-v6-data"
	}
	return a.prefix + "backend-data"
}

func (a Annotations) publicIP(f Family) string {
	if f == IPv6 {
		return a.prefix + "public-ipv6"
	}
	return a.prefix + "public-ip"
}

func (a Annotations) overwrite(f Family) string { return a.publicIP(f) + "-overwrite" }

// NodePublicIP returns the address of the external interface that an admin
// chose for a node by annotation, invalid when none was.
func (a Annotations) NodePublicIP(n Node, f Family) netip.Addr {
	name := a.prefix + "node-public-ip"
	if f == IPv6 {
		name += "v6"
	}
	addr, err := netip.ParseAddr(n.Annotations[name])
	if err != nil || !f.of(addr) {
		return netip.Addr{}
	}
	return addr
}

// vtep is the value of backend-data of vxlan, with flannel's field names.
type vtep struct {
	VNI     int
	VtepMAC string
}

// Announce returns the annotations that this node has to have so that peers
// find it, byte for byte as flannel writes them. They replace those of the same
// names; others stay.
func (a Annotations) Announce(c Config, self Self, own Node) map[string]string {
	out := map[string]string{a.managed(): "true", a.backendType(): string(c.Backend.Type)}
	for _, f := range c.Families() {
		half := self.Half(f)
		out[a.backendData(f)] = "null"
		if c.Backend.Type == VXLAN {
			text, _ := json.Marshal(vtep{c.Backend.VNI, half.MAC.String()}) // of an int and a string: cannot fail
			out[a.backendData(f)] = string(text)
		}
		out[a.publicIP(f)] = half.Public.String()
		if forced := own.Annotations[a.overwrite(f)]; forced != "" {
			out[a.publicIP(f)] = forced
		}
	}
	return out
}

// OwnMAC returns the address that the node's vxlan device had when the node
// last announced itself, so that it keeps it over restarts.
func (a Annotations) OwnMAC(own Node, f Family, vni int) (MAC, bool) {
	m, _, err := a.vtep(own, f)
	return m, err == nil && m != MAC{} && a.vniOf(own, f) == vni
}

func (a Annotations) vniOf(n Node, f Family) int {
	var v vtep
	_ = json.Unmarshal([]byte(n.Annotations[a.backendData(f)]), &v) // 0 when it is none
	return v.VNI
}

// vtep reads flannel's JSON about the vxlan device of a node: its MAC address and VNI.
func (a Annotations) vtep(n Node, f Family) (MAC, int, error) {
	name := a.backendData(f)
	text := n.Annotations[name]
	if text == "" {
		return MAC{}, 0, fmt.Errorf("annotation %s is missing", name)
	}
	var v vtep
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&v); err != nil {
		return MAC{}, 0, fmt.Errorf("annotation %s: %w", name, err)
	}
	m, err := ParseMAC(v.VtepMAC)
	if err != nil {
		return MAC{}, 0, fmt.Errorf("annotation %s: VtepMAC: %w", name, err)
	}
	return m, v.VNI, nil
}

// MAC is an Ethernet address. The zero MAC is none.
type MAC [6]byte

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// ParseMAC reads the form aa:bb:cc:dd:ee:ff of one station.
func ParseMAC(s string) (MAC, error) {
	h, err := net.ParseMAC(s)
	if err != nil || len(h) != 6 {
		return MAC{}, fmt.Errorf("%q is not an Ethernet address", s)
	}
	if m := MAC(h); m == (MAC{}) || m[0]&1 == 1 {
		return MAC{}, fmt.Errorf("%q is not the address of one station", s)
	}
	return MAC(h), nil
}

var errNoPodCIDR = errors.New("has no pod CIDR: let kube-controller-manager give it one (--allocate-node-cidrs, --cluster-cidr), or set spec.podCIDR")
