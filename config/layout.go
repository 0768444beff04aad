package config

// IPTablesOptions are what kube-proxy's iptables mode does not have.
type IPTablesOptions struct {
	Layout Layout `json:"layout,omitempty"`
}

// Layout is how the rules of iptables mode are arranged.
type Layout string

// The layouts; an empty Layout is Standard.
const (
	Standard Layout = "standard" // kube-proxy's chains
	Compact  Layout = "compact"  // for thousands of Services
)
