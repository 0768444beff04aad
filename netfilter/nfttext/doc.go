// Package nfttext reads what `nft list ruleset` prints (seen with nft 1.0.6;
// newer forms are taken from its documentation) and scripts for `nft -f` as
// far as they are of the same form or made of commands that add, flush and
// delete.
//
// A statement that is not understood ends its rule as netfilter.Unknown with
// its text. What cannot be a ruleset at all is an error with its line.
//
// parse.go reads what stands at the top of a ruleset, chain.go and set.go what stands in a
// table, and rule.go a rule: condition.go, nat.go and update.go its statements, expr.go
// their expressions. scan.go cuts the text into tokens.
package nfttext
