package netfilter

import "fmt"

// Counters are the packets and bytes a rule or a policy has seen.
type Counters struct {
	Packets uint64
	Bytes   uint64
}

// Table is one table of one family and variant, with its chains in the order
// in which they were declared. The zero value of Family and Variant means
// "not said".
type Table struct {
	Family  Family
	Variant Variant
	Name    string
	File    string // where it was read, for messages

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
	}
	t.chains[name] = c
	t.order = append(t.order, c)
	return c
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

// Chain is a list of rules. Hook is NoHook unless the kernel calls the chain.
type Chain struct {
	Name     string
	Hook     Hook
	Priority int
	Policy   Policy
	Counters Counters
	Rules    []Rule
	// References is what a listing says of the jumps to the chain, 0 if it
	// does not; an excerpt may lack some of them.
	References int
}

// Rule is one line of a chain: when all Matches are true, Target applies. A
// nil Target only counts.
type Rule struct {
	Text     string // as it was written, without counters
	Line     int    // in the file, from 1; 0 if not from a file
	Matches  []Match
	Target   Target
	Counters Counters
	Counted  bool // whether the text had counters
}

// Comment is the text of the rule's first comment match, "" without one.
func (r *Rule) Comment() string {
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
	return out
}
