// Package readfile reads files that a user names into memory, which may be anything.
package readfile

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// AtMost returns what a file holds, of so many bytes at most. It may be a pipe, or a device
// without an end; more than that is an error, which names the file.
func AtMost(name string, most int64) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var text strings.Builder
	n, err := io.Copy(&text, io.LimitReader(f, most+1))
	if err == nil && n > most {
		err = fmt.Errorf("%s: more than the %d bytes that are read", name, most)
	}
	return text.String(), err
}
