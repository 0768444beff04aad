package main

// The exit codes of every command: 0 done, 1 the answer is bad news (each
// command says what that is), 2 usage or cannot tell.
const (
	exitBadNews    = 1
	exitCannotTell = 2
)

// exitError ends the process with a code of its own. An error without one ends
// it with exitCannotTell.
type exitError struct {
	code int
	err  error // nil when everything has been said already
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }
