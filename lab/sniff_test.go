package lab

import "testing"

// Whatever comes by does not crash the one who hears it.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0x21, 0x18, 0x21, 0x18, 0, 8, 0, 0})
	f.Add(append([]byte{0x60, 0, 0, 0, 0, 20, 6, 64}, make([]byte, 52)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := decode(b); ok && (p.Length > len(b) || p.Text() == "") {
			t.Errorf("%+v of %d bytes", p, len(b))
		}
	})
}
