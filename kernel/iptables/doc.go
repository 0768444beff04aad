// Package iptables runs iptables-restore and iptables-save, knows which of the
// two variants a host uses, and maps the saved form of the rules that this
// program writes back to the form in which they were written.
//
// It executes the iptables programs and nothing else, and never a shell. It
// knows the words of rules, but neither Services nor chains.
package iptables
