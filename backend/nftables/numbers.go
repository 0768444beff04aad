package nftables

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// numbers are what chains that balance, affinity scopes and chains that learn are called
// in the kernel. A number is a hash of the name, or the next free one. The comments in
// balancers, affinity-learn and affinity-scopes keep them over a restart.
//
// The number of a chain that learns has nothing but its upper bits, and a scope, whose
// name ends in that of its chain (see scopeOf), has those of its chain and its own lower
// ones. So a packet that carries a scope carries its chain, too, and a new scope needs no
// verdict: the kernel walks every map of verdicts after a change in one of them.
//
// None is a small number, which others use as priorities.
type numbers struct {
	byName map[string]uint32
	names  map[uint32]string
}

func newNumbers() numbers { return numbers{map[string]uint32{}, map[uint32]string{}} }

const (
	leastNumber = 1 << 24
	learnerStep = 1 << 20 // between chains that learn: the least of their bits
	scopeBits   = learnerStep - 1
)

// numberRange is where the numbers of a kind lie: from first to last, so far apart.
type numberRange struct{ first, last, step uint32 }

// rangeOf returns where the number of a name lies.
func (n numbers) rangeOf(name string) (numberRange, error) {
	if _, learner, is := strings.Cut(name, " "); is {
		id, err := n.of(learner)
		return numberRange{id + 1, id + scopeBits, 1}, err
	}
	if strings.HasPrefix(name, learnPrefix) {
		return numberRange{leastNumber, ^uint32(scopeBits), learnerStep}, nil
	}
	return numberRange{leastNumber, ^uint32(0), 1}, nil
}

// of returns the number of a name. It fails when all of its kind are taken.
func (n numbers) of(name string) (uint32, error) {
	if id, ok := n.byName[name]; ok {
		return id, nil
	}
	if digits, unnamed := strings.CutPrefix(name, "#"); unnamed { // read, and no name for it
		id, err := strconv.ParseUint(digits, 10, 32)
		return uint32(id), err
	}
	r, err := n.rangeOf(name)
	if err != nil {
		return 0, err
	}
	sum := sha256.Sum256([]byte(name))
	count := (r.last-r.first)/r.step + 1
	at := binary.BigEndian.Uint32(sum[:4]) % count
	for range count {
		if id := r.first + at*r.step; n.names[id] == "" {
			n.learn(name, id)
			return id, nil
		}
		at = (at + 1) % count
	}
	return 0, fmt.Errorf("all %d numbers for what is like %q are taken", count, name)
}

// fits tells whether a number may be that of a name.
func (n numbers) fits(name string, id uint32) bool {
	if _, learner, is := strings.Cut(name, " "); is {
		return n.byName[learner] == id&^scopeBits && id&scopeBits != 0
	}
	return !strings.HasPrefix(name, learnPrefix) || id&scopeBits == 0
}

// learn notes a number that the kernel has.
func (n numbers) learn(name string, id uint32) { n.byName[name], n.names[id] = id, name }

// name finds what a number stands for, empty when that is nothing.
func (n numbers) name(id uint32) string { return n.names[id] }

// drop frees the number of a name for another.
func (n numbers) drop(name string) {
	delete(n.names, n.byName[name])
	delete(n.byName, name)
}
