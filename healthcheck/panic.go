package healthcheck

import (
	"fmt"
	"net/http"
	"runtime/debug"
)

// loud has a panic of a handler end the process, as every other panic does: net/http
// alone would write it to the log and go on, with whatever lock or state the handler
// left behind.
func loud(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { // not a fault: the way to hang up on a client
				panic(p)
			}
			text := fmt.Sprintf("healthcheck: %s %s: %v\n%s", r.Method, r.URL.Path, p, debug.Stack())
			go panic(text) // nobody recovers in a goroutine of its own
			select {}
		}()
		h.ServeHTTP(w, r)
	})
}
