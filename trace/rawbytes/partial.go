package rawbytes

// partial is a number of which only the bits set in known are known; the
// others are 0 in bits.
type partial struct{ bits, known uint32 }

// exactly is a number that is known.
func exactly(n uint32) partial { return partial{n, ^uint32(0)} }

// sure tells whether all of it is known.
func (p partial) sure() bool { return p.known == ^uint32(0) }

// and knows a bit where one of the two is known to be 0, too.
func (p partial) and(q partial) partial {
	zero := (p.known &^ p.bits) | (q.known &^ q.bits)
	return partial{p.bits & q.bits, p.known&q.known | zero}
}

// left and right shift zeros in, which are known.

func (p partial) left(n uint32) partial {
	if n > 31 {
		return exactly(0)
	}
	return partial{p.bits << n, p.known<<n | (1<<n - 1)}
}

func (p partial) right(n uint32) partial {
	if n > 31 {
		return exactly(0)
	}
	return partial{p.bits >> n, p.known>>n | ^(^uint32(0) >> n)}
}
