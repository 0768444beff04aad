package netfilter

import "fmt"

// Counters are the packets and bytes a rule or a policy has seen.
type Counters struct {
	Packets uint64
	Bytes   uint64
}

// Table is one table of one family and variant, with its chains in the order
// in which they were declared. The zero value of Family and Variant means
// "not said". Native tables have their nft family in the name, "ip kube-proxy";
// of inet tables Family is 0, and they serve both.
type Table struct {
	Family  Family
	Variant Variant
	Name    string
	File    string // where it was read, for messages

	Sets []*NFTSet // of native tables, in order of declaration

	chains map[string]*Chain
	order  []*Chain
}

// NewTable makes a table without chains.
func NewTable(f Family, v Variant, name, file string) *Table {
	return &Table{Family: f, Variant: v, Name: name, File: file, chains: map[string]*Chain{}}
}

// Chain returns a chain by name, nil when the table does not have it. Chains
// of one name in two tables are two chains.
func (t *Table) Chain(name string) *Chain { return t.chains[name] }

// Chains lists the chains in order of declaration. The slice is the table's
// own.
func (t *Table) Chains() []*Chain { return t.order }

// AddChain returns the chain of that name, made empty if it was not there. A
// built-in chain gets its hook and the policy ACCEPT.
func (t *Table) AddChain(name string) *Chain {
	if c := t.chains[name]; c != nil {
		return c
	}
	c := &Chain{Name: name}
	if h := HookOfChain(name); h != NoHook && HasHook(t.Name, h) {
		c.Hook, c.Policy = h, PolicyAccept
		c.Priority = Priority(t.Name, h, t.Variant)
		switch {
		case t.Name == NAT:
			c.Type = NATChain
		case t.Name == Mangle && h == Output:
			c.Type = RouteChain
		}
	}
	t.chains[name] = c
	t.order = append(t.order, c)
	return c
}

// Serves reports whether packets of a family run through the table.
func (t *Table) Serves(f Family) bool {
	return t.Family == f || (t.Variant == Native && t.Family == 0)
}

// Set finds a set or map of a native table by name, nil if it has none.
func (t *Table) Set(name string) *NFTSet {
	for _, s := range t.Sets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// RemoveChain forgets a chain; unknown names are ignored.
func (t *Table) RemoveChain(name string) {
	if t.chains[name] == nil {
		return
	}
	delete(t.chains, name)
	for i, c := range t.order {
		if c.Name == name {
			t.order = append(t.order[:i:i], t.order[i+1:]...)
			return
		}
	}
}

// References counts the rules that jump or go to a chain, what `iptables -L`
// prints beside the chain's name.
func (t *Table) References(name string) int {
	n := 0
	for _, c := range t.order {
		for i := range c.Rules {
			if j, ok := c.Rules[i].Target.(Jump); ok && j.Chain == name {
				n++
			}
			for _, s := range c.Rules[i].Statements {
				if j, ok := s.(Jump); ok && j.Chain == name {
					n++
				}
			}
		}
	}
	return n
}

// RuleCount is the number of rules in all chains.
func (t *Table) RuleCount() int {
	n := 0
	for _, c := range t.order {
		n += len(c.Rules)
	}
	return n
}

// Policy is what happens to a packet that reaches the end of a built-in chain.
type Policy uint8

// NoPolicy is the policy of chains that are not built in.
const (
	NoPolicy Policy = iota
	PolicyAccept
	PolicyDrop
)

func (p Policy) String() string {
	switch p {
	case NoPolicy:
		return "-"
	case PolicyAccept:
		return "ACCEPT"
	case PolicyDrop:
		return "DROP"
	default:
		panic(fmt.Sprintf("netfilter: policy %d", p))
	}
}

// ChainType is what a base chain may do.
type ChainType uint8

// The types. NATChain sees the first packet of a connection only, RouteChain
// (in OUTPUT) makes the packet be routed anew when it changes something.
const (
	FilterChain ChainType = iota
	NATChain
	RouteChain
)

// Chain is a list of rules. Hook is NoHook unless the kernel calls the chain.
type Chain struct {
	Name     string
	Hook     Hook
	Type     ChainType
	Priority int
	// Order is the place in the kernel's own listing, from 1: what was
	// registered later. 0 is not known.
	Order    int
	Policy   Policy
	Counters Counters
	Rules    []Rule
	// References is what a listing says of the jumps to the chain, 0 if it
	// does not; an excerpt may lack some of them.
	References int
}

// Rule is one line of a chain: when all Matches are true, Target applies. A
// nil Target only counts. A rule of a native table has Statements instead of
// both.
type Rule struct {
	Text       string // as it was written, without counters
	Line       int    // in the file, from 1; 0 if not from a file
	Matches    []Match
	Target     Target
	Statements []Statement
	Counters   Counters
	Counted    bool // whether the text had counters
}

// Comment is the text of the rule's first comment, "" without one.
func (r *Rule) Comment() string {
	for _, s := range r.Statements {
		if c, ok := s.(Comment); ok {
			return c.Text
		}
	}
	for _, m := range r.Matches {
		if c, ok := m.(Comment); ok {
			return c.Text
		}
	}
	return ""
}

// Unknowns lists what in the rule was not understood.
func (r *Rule) Unknowns() []Unknown {
	var out []Unknown
	for _, m := range r.Matches {
		if u, ok := m.(Unknown); ok {
			out = append(out, u)
		}
	}
	if u, ok := r.Target.(Unknown); ok {
		out = append(out, u)
	}
	for _, s := range r.Statements {
		if u, ok := s.(Unknown); ok {
			out = append(out, u)
		}
	}
	return out
}
