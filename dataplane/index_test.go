package dataplane

import "testing"

// TestIndexed: with an index in every container all is as without.
func TestIndexed(t *testing.T) {
	from, share := indexFrom, indexShare
	indexFrom, indexShare = 1, 1
	defer func() { indexFrom, indexShare = from, share }()
	for name, test := range map[string]func(*testing.T){
		"refused owners":     TestSyncHoldsBackRefusedOwners,
		"last good version":  TestRejectedChangeKeepsTheLastGoodVersion,
		"search after start": TestSearchAfterAStartKeepsOthersUp,
		"converges":          TestSyncConverges,
		"forgets the way":    TestWantForgetsTheWay,
		"loser takes over":   TestLoserTakesOverInTheSamePlan,
		"two replacements":   TestSwapOfOneAddressIsTwoReplacements,
		"first write":        TestFirstWriteObserves,
		"kept containers":    TestContainerThatCannotGoIsKept,
	} {
		t.Run(name, test)
	}
}
