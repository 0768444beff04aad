package figures

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Product is one of the two that are measured.
type Product string

const (
	Portolan  Product = "portolan"
	KubeProxy Product = "kube-proxy"
)

// A Mode is how rules get into the kernel.
type Mode string

const (
	Nftables   Mode = "nftables"
	Legacy     Mode = "iptables-legacy"
	NFT        Mode = "iptables-nft"
	Compact    Mode = "iptables-legacy-compact"
	CompactNFT Mode = "iptables-nft-compact"
)

// Modes are all of them, in the order of the tables.
var Modes = []Mode{Nftables, Legacy, NFT, Compact, CompactNFT}

// Peer is the mode of kube-proxy that a mode is held against: it knows no compact
// layout.
func (m Mode) Peer() Mode { return Mode(strings.TrimSuffix(string(m), "-compact")) }

// A Workload is how many Services there are, and of which sort.
type Workload struct {
	Services  int
	Endpoints int // of each Service; 0 means the mix
}

// Mix tells whether Services are of all sorts, with 0 to 1,000 endpoints.
func (w Workload) Mix() bool { return w.Endpoints == 0 }

// MixEndpoints deals out the endpoint counts of the mix, by the number of the Service,
// from 0: of 1,000 Services 50 have none, 400 have 1, 300 have 3, 200 have 10, 49 have
// 100 and 1 has 1,000; 9.2 on average. The factor has nothing in common with 1,000, so
// that every kind of Service meets every count.
func MixEndpoints(i int) int {
	switch n := i * 7 % 1000; {
	case n < 50:
		return 0
	case n < 450:
		return 1
	case n < 750:
		return 3
	case n < 950:
		return 10
	case n < 999:
		return 100
	}
	return 1000
}

// String is what ParseWorkload reads: 5000x10, or 1000mix.
func (w Workload) String() string {
	if w.Mix() {
		return fmt.Sprintf("%dmix", w.Services)
	}
	return fmt.Sprintf("%dx%d", w.Services, w.Endpoints)
}

// Title is the workload in words.
func (w Workload) Title() string {
	if w.Mix() {
		return Count(w.Services) + " Services, mix"
	}
	return fmt.Sprintf("%s Services x %d, plain", Count(w.Services), w.Endpoints)
}

// ParseWorkload reads the number of Services and of endpoints of each, with an x
// between, or the number of Services and "mix".
func ParseWorkload(text string) (Workload, error) {
	services, mix := strings.CutSuffix(text, "mix")
	var w Workload
	var err error
	if !mix {
		var endpoints string
		services, endpoints, _ = strings.Cut(text, "x")
		w.Endpoints, err = strconv.Atoi(endpoints)
	}
	w.Services, _ = strconv.Atoi(services) // 0 is refused below
	if err != nil || !mix && w.Endpoints < 1 || w.Services < 20 || w.Services > 60000 {
		return Workload{}, fmt.Errorf("figures: workload %q is neither like 5000x10 nor like 1000mix, with 20 to 60000 Services", text)
	}
	return w, nil
}

func (w Workload) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

func (w *Workload) UnmarshalText(text []byte) (err error) {
	*w, err = ParseWorkload(string(text))
	return err
}

// A Run is one run of one product: a line of the data.
type Run struct {
	Taken    time.Time         `json:"taken"`
	Commit   string            `json:"commit,omitempty"` // of Portolan
	Machine  string            `json:"machine,omitempty"`
	Load     float64           `json:"load"` // average over a minute, when it began
	Workload Workload          `json:"workload"`
	Product  Product           `json:"product"`
	Mode     Mode              `json:"mode"`
	Recorded string            `json:"recorded,omitempty"` // where figures are from that the bench did not measure
	Failed   string            `json:"failed,omitempty"`   // why there are no more values
	Values   map[Row][]float64 `json:"values"`
}

// Add adds a value, rounded to what a measurement can mean.
func (r *Run) Add(row Row, v float64) {
	if r.Values == nil {
		r.Values = map[Row][]float64{}
	}
	r.Values[row] = append(r.Values[row], round(v))
}

// round keeps four digits that count.
func round(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-3)
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(math.Round(v/unit)*unit, 'g', 4, 64), 64) // it is a number
	return rounded
}

// Append adds a run to a file of lines, which need not be there yet.
func Append(file string, r Run) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("figures: a run: %w", err)
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("figures: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// ReadFolder reads all files NAME.jsonl of a folder, in the order of their names.
func ReadFolder(dir string) ([]Run, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("figures: no file NAME.jsonl in %s", dir)
	}
	slices.Sort(files)
	var all []Run
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("figures: %w", err)
		}
		runs, err := Read(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("figures: %s: %w", name, err)
		}
		all = append(all, runs...)
	}
	return all, nil
}

// Read reads lines of runs. A row or a field that is not known is an error: what
// does not get into the report should not look as if it did.
func Read(in io.Reader) ([]Run, error) {
	var runs []Run
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r Run
		decoder := json.NewDecoder(strings.NewReader(lines.Text()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&r); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		for row := range r.Values {
			if _, err := HeadingOf(row); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		}
		if !slices.Contains(Modes, r.Mode) || r.Product != Portolan && r.Product != KubeProxy {
			return nil, fmt.Errorf("line %d: product %q, mode %q", n, r.Product, r.Mode)
		}
		runs = append(runs, r)
	}
	return runs, lines.Err()
}
