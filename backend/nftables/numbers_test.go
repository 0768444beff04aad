package nftables

import "testing"

// TestNumbers: a number that is taken goes to nobody else.
func TestNumbers(t *testing.T) {
	ids := newNumbers()
	first := ids.of("default/web:http")
	other := newNumbers()
	other.learn("default/other:http", first)
	if second := other.of("default/web:http"); second != first+1 || other.name(first) != "default/other:http" || other.name(second) != "default/web:http" {
		t.Errorf("numbers %v", other)
	}
	if first < leastNumber {
		t.Errorf("number %d", first)
	}
}
