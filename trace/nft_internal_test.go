package trace

import "testing"

// The vectors are those of the hash's author.
func TestJHash(t *testing.T) {
	const text = "Four score and seven years ago"
	for seed, want := range map[uint32]uint32{0: 0x17770551, 1: 0xcd628161} {
		if got := jhash([]byte(text), seed); got != want {
			t.Errorf("seed %d: %#x, want %#x", seed, got, want)
		}
	}
	if got := jhash(nil, 0); got != 0xdeadbeef {
		t.Errorf("nothing: %#x", got)
	}
}
