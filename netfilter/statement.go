package netfilter

// Statement is a part of an nft rule. Statements run from left to right; a
// condition that is false ends the rule, what came before it has been done.
// The set is closed: the targets and matches that nft shares with iptables,
// and those below.
type Statement interface{ statement() }

// CompareOp is how two values are compared.
type CompareOp uint8

// The comparisons. Order is that of numbers. Shares is true when the values,
// taken as flags, have one in common.
const (
	Equal CompareOp = iota
	NotEqual
	Less
	LessOrEqual
	Greater
	GreaterOrEqual
	Shares
	SharesNone
)

// Compare is a condition. With Equal and NotEqual a constant on the right may
// be a range, and is then compared by being in it.
type Compare struct {
	Left  Expr
	Op    CompareOp
	Right Expr
	Text  string
}

// Member is true when a set has the key.
type Member struct {
	Key  Expr
	Set  *NFTSet
	Not  bool
	Text string
}

// VerdictMap does what a map says for a key; without an element the rule ends.
type VerdictMap struct {
	Key Expr
	Map *NFTSet
}

// Assign sets a field of the packet or of its connection. Selectors that a
// walk does not model give a Note instead.
type Assign struct {
	To    Selected
	Value Expr
}

// Update changes a set from a rule: it adds an element, adds it or makes its
// time begin anew, or deletes it.
type Update struct {
	Delete bool
	Set    *NFTSet
	Key    Expr
	Data   Expr // nil for sets
	Text   string
}

// Rewrite changes an address, a port or both. Addr and Port are nil when they
// are kept or found by the kernel; Addr may give address and port, one after
// the other. Family is that of the address, 0 when the rule does not say it.
type Rewrite struct {
	Kind        NATKind
	Family      Family
	Addr, Port  Expr
	Random      bool
	RandomFully bool
	Persistent  bool
}

// Transparent hands the packet to a local socket, as TPROXY does, but does not
// accept it.
type Transparent struct {
	Family     Family
	Addr, Port Expr
}

// Count counts. Name is that of a counter object, "" for one of the rule.
type Count struct{ Name string }

// Continue goes on with the next rule.
type Continue struct{}

func (Compare) statement()     {}
func (Member) statement()      {}
func (VerdictMap) statement()  {}
func (Assign) statement()      {}
func (Update) statement()      {}
func (Rewrite) statement()     {}
func (Transparent) statement() {}
func (Count) statement()       {}
func (Continue) statement()    {}

func (Accept) statement()          {}
func (Drop) statement()            {}
func (Return) statement()          {}
func (Jump) statement()            {}
func (Reject) statement()          {}
func (NFQueue) statement()         {}
func (Log) statement()             {}
func (CT) statement()              {}
func (Note) statement()            {}
func (Metered) statement()         {}
func (Comment) statement()         {}
func (StatisticRandom) statement() {}
func (Unknown) statement()         {}
