package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Family is an IP family: 4 or 6.
type Family uint8

// The two families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// of tells whether an address belongs to the family.
func (f Family) of(a netip.Addr) bool { return a.IsValid() && a.Is4() == (f == IPv4) }

// BackendType is how packets get from node to node.
type BackendType string

// The backends, by the names that net-conf.json and the annotation
// backend-type have.
const (
	VXLAN  BackendType = "vxlan"
	HostGW BackendType = "host-gw"
)

// Config is what net-conf.json says, with flannel's defaults.
type Config struct {
	// Network and IPv6Network hold the pod CIDRs of all nodes. A family that is
	// not enabled has none.
	Network, IPv6Network netip.Prefix
	// NFTables asks for the masquerade and forward rules in tables of nftables
	// instead of iptables.
	NFTables bool
	Backend  Backend
}

// Backend is the key Backend of net-conf.json. All but Type are of vxlan.
type Backend struct {
	Type BackendType
	VNI  int // network identifier, 1 to 16777215; 1 when not set
	// Port is the UDP port, 0 for the kernel's default, 8472.
	Port int
	// MTU is that of the outer packet in bytes, 0 for the external interface's.
	MTU int
	// GBP adds the group policy extension, Learning lets the device learn
	// addresses from what it receives.
	GBP, Learning bool
	// DirectRouting uses a plain route to peers that are on the same link.
	DirectRouting bool
}

// Families lists the enabled families, IPv4 first.
func (c Config) Families() []Family {
	var out []Family
	if c.Network.IsValid() {
		out = append(out, IPv4)
	}
	if c.IPv6Network.IsValid() {
		out = append(out, IPv6)
	}
	return out
}

// NetworkOf returns the range of all pods of a family.
func (c Config) NetworkOf(f Family) netip.Prefix {
	if f == IPv6 {
		return c.IPv6Network
	}
	return c.Network
}

// confFile is net-conf.json. encoding/json matches names without regard to
// case, as flannel does. Other keys, such as those of flannel's etcd manager
// (SubnetLen ...), mean nothing here: a node's range is the podCIDR of its Node.
type confFile struct {
	Network, IPv6Network string
	EnableIPv4           *bool
	EnableIPv6           bool
	EnableNFTables       bool
	Backend              *backendFile
}

// backendFile is the object Backend of net-conf.json.
type backendFile struct {
	Type          string
	VNI           *int
	Port, MTU     int
	GBP, Learning bool
	DirectRouting bool
}

// ParseConfig reads net-conf.json. An error names the key at fault.
//
// Without a Backend the type is vxlan, as flannel's documentation says; its
// code falls back to udp, which exists no more.
func ParseConfig(text []byte) (Config, error) {
	var file confFile
	if err := json.Unmarshal(text, &file); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return Config{}, fmt.Errorf("podnet: net-conf.json: %s is a %s, which it cannot be", wrong.Field, wrong.Value)
		}
		return Config{}, fmt.Errorf("podnet: net-conf.json: %w", err)
	}
	var c Config
	var errs []error
	if file.EnableIPv4 == nil || *file.EnableIPv4 {
		var err error
		c.Network, err = networkOf("Network", file.Network, IPv4)
		errs = append(errs, err)
	}
	if file.EnableIPv6 {
		var err error
		c.IPv6Network, err = networkOf("IPv6Network", file.IPv6Network, IPv6)
		errs = append(errs, err)
	}
	c.NFTables = file.EnableNFTables
	if file.Backend == nil {
		file.Backend = &backendFile{Type: string(VXLAN)}
	}
	var err error
	c.Backend, err = backendOf(*file.Backend)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return Config{}, fmt.Errorf("podnet: net-conf.json: %w", err)
	}
	if len(c.Families()) == 0 {
		return Config{}, errors.New("podnet: net-conf.json: neither EnableIPv4 nor EnableIPv6 is true: nothing to do")
	}
	return c, nil
}

// networkOf checks the network of a family, which key names in the file.
func networkOf(key, text string, f Family) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, fmt.Errorf("%s is missing, and %s is enabled: set it to the cluster's pod CIDR", key, f)
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s %q is not a CIDR, for example 10.244.0.0/16", key, text)
	}
	if !f.of(p.Addr()) {
		return netip.Prefix{}, fmt.Errorf("%s %q is not %s", key, text, f)
	}
	if p.Bits() == 0 { // the default route would count as one to pods
		return netip.Prefix{}, fmt.Errorf("%s %q is every address: set it to the cluster's pod CIDR", key, text)
	}
	return p.Masked(), nil
}

// backendOf reads Backend with flannel's defaults.
func backendOf(file backendFile) (Backend, error) {
	b := Backend{Type: BackendType(strings.ToLower(file.Type)), VNI: 1, Port: file.Port, MTU: file.MTU, GBP: file.GBP, Learning: file.Learning, DirectRouting: file.DirectRouting}
	if file.VNI != nil {
		b.VNI = *file.VNI
	}
	switch b.Type {
	case HostGW:
		return Backend{Type: HostGW}, nil
	case VXLAN:
	default:
		return Backend{}, fmt.Errorf("Backend.Type %q is not supported: use vxlan or host-gw", file.Type)
	}
	switch {
	case b.VNI < 1 || b.VNI > 1<<24-1:
		return Backend{}, fmt.Errorf("Backend.VNI %d is not between 1 and 16777215", b.VNI)
	case b.Port < 0 || b.Port > 65535:
		return Backend{}, fmt.Errorf("Backend.Port %d is not between 0 and 65535", b.Port)
	case b.MTU != 0 && (b.MTU < 1280+overheadIPv6 || b.MTU > 65535):
		return Backend{}, fmt.Errorf("Backend.MTU %d is not between %d and 65535", b.MTU, 1280+overheadIPv6)
	}
	return b, nil
}
