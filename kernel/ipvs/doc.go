// Package ipvs reads and writes the virtual servers of the kernel (IPVS), over
// generic netlink, and the addresses of the dummy device that makes them local.
//
// It knows servers and addresses, but neither Services nor rules. Every call has an
// answer within seconds or is an error.
package ipvs
