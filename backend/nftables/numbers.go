package nftables

import (
	"crypto/sha256"
	"encoding/binary"
)

// numbers are what chains that balance and affinity scopes are called in the kernel. A
// number is a hash of the name, or the next free one, and never a small one, which
// others use as priorities. The comments in balancers and affinity-learn keep them over
// a restart. A scope has a slash in its name, and a chain has none.
type numbers struct {
	byName map[string]uint32
	names  map[uint32]string
}

func newNumbers() numbers { return numbers{map[string]uint32{}, map[uint32]string{}} }

const leastNumber = 1 << 24

// of returns the number of a name.
func (n numbers) of(name string) uint32 {
	if id, ok := n.byName[name]; ok {
		return id
	}
	sum := sha256.Sum256([]byte(name))
	id := binary.BigEndian.Uint32(sum[:4])
	for id < leastNumber || n.names[id] != "" {
		id++
	}
	n.learn(name, id)
	return id
}

// learn notes a number that the kernel has.
func (n numbers) learn(name string, id uint32) { n.byName[name], n.names[id] = id, name }

// name finds what a number stands for, empty when that is nothing.
func (n numbers) name(id uint32) string { return n.names[id] }

func (n numbers) drop(name string) {
	delete(n.names, n.byName[name])
	delete(n.byName, name)
}
