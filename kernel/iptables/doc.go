// Package iptables runs iptables-restore and iptables-save, knows which of the
// two variants a host uses, and maps the saved form of the rules that this
// program writes back to the form in which they were written.
//
// It executes the iptables programs and nothing else, and never a shell; what they do not
// tell, or only after seconds, it asks the kernel. It knows the words of rules, but neither
// Services nor chains.
//
// tool.go runs the programs and save.go reads what they print; detect.go finds out which
// there are and which variant the host uses, filled.go which tables hold rules at all, and
// probe.go which rules are taken. ahead.go lists tables before anybody needs it.
// canonical.go and written.go know the forms of a rule. watch.go tells when others change
// a table, and eye.go is how it looks at legacy tables, which notify nobody. remove.go
// takes rules and chains away.
package iptables
