// Package ipvssave reads the virtual servers of IPVS as `ipvsadm -Ln` lists them,
// as `ipvsadm -Sn` saves them, and as /proc/net/ip_vs has them. Names instead of
// numbers (without -n) are errors: what they stand for is not in the text.
package ipvssave
