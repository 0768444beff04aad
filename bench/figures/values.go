package figures

import (
	"math"
	"slices"
	"strconv"
)

// Values are those of a row, sorted.
type Values []float64

// Collect gathers a row's values of all runs of a product in a mode under a
// workload. Recorded ones count only where the bench measured none.
func Collect(runs []Run, w Workload, p Product, m Mode, row Row) Values {
	var measured, recorded []float64
	for _, r := range runs {
		switch {
		case r.Workload != w || r.Product != p || r.Mode != m:
		case r.Recorded == "":
			measured = append(measured, r.Values[row]...)
		default:
			recorded = append(recorded, r.Values[row]...)
		}
	}
	if len(measured) > 0 {
		return Sorted(measured)
	}
	return Sorted(recorded)
}

// Sorted makes values of numbers, which it sorts in place.
func Sorted(values []float64) Values {
	slices.Sort(values)
	return values
}

// Quantile is the value that a share (0 to 1) of all lie at or below; NaN of none.
func (v Values) Quantile(share float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	return v[max(0, int(math.Ceil(share*float64(len(v))))-1)]
}

// Median is the middle one, of an even number the mean of the two; NaN of none.
func (v Values) Median() float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	middle := len(v) / 2
	if len(v)%2 == 0 {
		return (v[middle-1] + v[middle]) / 2
	}
	return v[middle]
}

// many is how many values it takes for a p99 to mean something.
const many = 100

// String is the median with the lowest and the highest behind it, of many values
// with p99 too, and a dash for no values.
func (v Values) String() string {
	if len(v) == 0 {
		return "-"
	}
	text := Number(v.Median())
	switch low, high := Number(v[0]), Number(v[len(v)-1]); {
	case len(v) >= many:
		text += " (" + low + "-" + high + ", p99 " + Number(v.Quantile(0.99)) + ")"
	case low != high:
		text += " (" + low + "-" + high + ")"
	}
	return text
}

// Number is a value with three digits that count.
func Number(v float64) string {
	switch size := math.Abs(v); {
	case v == 0:
		return "0"
	case size >= 999.5:
		return Count(int(math.Round(v)))
	default:
		digits := 2 - int(math.Floor(math.Log10(size)))
		return strconv.FormatFloat(v, 'f', min(max(digits, 0), 4), 64)
	}
}

// Count is a whole number with commas.
func Count(n int) string {
	if n < 0 {
		return "-" + Count(-n)
	}
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// A Point is what something costs at a size; both are above 0.
type Point struct{ Size, Cost float64 }

// A Growth is how a cost grows with size: cost = Factor * size^Exponent, fitted by
// least squares of the logarithms. Exponent 1 is linear, 0 is flat.
type Growth struct{ Factor, Exponent float64 }

// Grow fits a growth to points. Of fewer than two sizes there is none.
func Grow(points []Point) (Growth, bool) {
	var n, sx, sy, sxx, sxy float64
	for _, p := range points {
		x, y := math.Log(p.Size), math.Log(p.Cost)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	spread := n*sxx - sx*sx
	if n < 2 || spread <= 0 {
		return Growth{}, false
	}
	exponent := (n*sxy - sx*sy) / spread
	return Growth{math.Exp((sy - exponent*sx) / n), exponent}, true
}

// At is the cost at a size.
func (g Growth) At(size float64) float64 { return g.Factor * math.Pow(size, g.Exponent) }

// Times is a ratio as text: how many times as much, or "all of it" when nothing
// is left.
func Times(of, through float64) string {
	switch {
	case math.IsNaN(of) || math.IsNaN(through) || of == 0:
		return ""
	case through == 0:
		return "all of it"
	}
	return Number(of/through) + "x"
}
