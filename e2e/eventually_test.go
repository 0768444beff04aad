package e2e

import "time"

// inTheEnd bounds the wait for what takes tenths of a second on a quiet machine.
const inTheEnd = time.Minute

// eventually asks again and again what is missing until that is nothing, and after a
// time of inTheEnd returns what is missing still. It rests as long as a question
// takes, so that asking leaves the machine to those who are asked about.
func eventually(missing func() error) error {
	for start := time.Now(); ; {
		asked := time.Now()
		err := missing()
		if err == nil || time.Since(start) > inTheEnd {
			return err
		}
		<-time.After(max(every, time.Since(asked)))
	}
}
