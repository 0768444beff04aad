package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// documents are those of a file, one after the other.
type documents struct {
	reader   *utilyaml.YAMLReader
	data     []byte
	unread   *bytes.Reader
	buffered *bufio.Reader
	skipped  int // lines of the file before the document that was read last
}

func documentsOf(data []byte) *documents {
	d := &documents{data: data, unread: bytes.NewReader(data)}
	d.buffered = bufio.NewReader(d.unread)
	d.reader = utilyaml.NewYAMLReader(d.buffered)
	return d
}

// next returns a document, or io.EOF.
func (d *documents) next() ([]byte, error) {
	raw, err := d.reader.Read()
	read := bytes.TrimSuffix(d.data[:len(d.data)-d.unread.Len()-d.buffered.Buffered()], []byte("\n"))
	last := read[bytes.LastIndexByte(read, '\n')+1:]
	d.skipped = bytes.Count(read, []byte("\n")) + 1 - bytes.Count(raw, []byte("\n"))
	if bytes.HasPrefix(last, []byte("---")) { // the line that ended it
		d.skipped--
	}
	return raw, err
}

var lineNumber = regexp.MustCompile(`\bline (\d+)`)

// ofFile has an error of the last document tell lines of the file, each error once, in
// one line.
func (d *documents) ofFile(err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	text := lineNumber.ReplaceAllStringFunc(err.Error(), func(s string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(s, "line "))
		return "line " + strconv.Itoa(d.skipped+n)
	})
	if first, rest, several := strings.Cut(text, "\n"); several && strings.HasSuffix(first, ":") {
		lines := strings.Split(rest, "\n")
		for i, line := range lines {
			lines[i] = strings.Replace(strings.TrimSpace(line), "already set in map", "is there already; the last one counts", 1)
		}
		text = strings.Join(lines, "; ")
	}
	return errors.New(text)
}
