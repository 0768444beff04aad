package iptables

import "testing"

// BenchmarkLook: what one look costs that finds nothing.
func BenchmarkLook(b *testing.B) {
	for _, v := range []Variant{Legacy, NFT} {
		b.Run(string(v), func(b *testing.B) {
			e, err := openEye(IPv4, v)
			if err != nil {
				b.Skip(err)
			}
			defer e.close()
			for b.Loop() {
				if _, err := e.look(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
