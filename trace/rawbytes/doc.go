// Package rawbytes knows the headers of a packet as bytes, and runs what looks at bytes: the
// tests of -m u32 and programs of classic BPF. Of a packet that is only described some bytes
// are not known; whatever depends on them has the answer Unknown.
//
// image.go has the bytes, partial.go numbers of which some bits are known, u32.go and bpf.go
// the two machines.
package rawbytes
