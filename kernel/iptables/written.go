package iptables

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
)

// writtenPrefix leaves out the length of a single address. The one exception is
// that of kube-proxy: it writes it for what NodePorts do not answer on.
func writtenPrefix(s string, not bool) (string, bool) {
	if not && s == "::1/128" {
		return s, true
	}
	bare, _, hasBits := strings.Cut(s, "/")
	if !hasBits {
		a, err := netip.ParseAddr(s)
		return writtenAddr(s, a), err == nil && a.Zone() == ""
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return writtenBits(s)
	}
	if p.IsSingleIP() {
		return writtenAddr(bare, p.Addr()), true
	}
	return p.Masked().String(), true
}

// writtenAddr is a.String(), which most of the time is the text that a was read from.
func writtenAddr(text string, a netip.Addr) string {
	var room [64]byte
	if written := a.AppendTo(room[:0]); string(written) != text {
		return string(written)
	}
	return text
}

// writtenBits is ADDRESS/MASK where the mask is not that of a prefix.
func writtenBits(s string) (string, bool) {
	a, m, _ := strings.Cut(s, "/")
	addr, err1 := netip.ParseAddr(a)
	mask, err2 := netip.ParseAddr(m)
	if err1 != nil || err2 != nil || addr.BitLen() != mask.BitLen() || addr.Zone()+mask.Zone() != "" {
		return "", false
	}
	return addr.String() + "/" + mask.String(), true
}

// writtenMark prints value/mask with eight digits.
func writtenMark(s string) (string, bool) {
	value, mask, ok := parseMark(s)
	return fmt.Sprintf("0x%08x/0x%08x", value, mask), ok
}

func parseMark(s string) (value, mask uint64, ok bool) {
	v, m, hasMask := strings.Cut(s, "/")
	value, err := strconv.ParseUint(v, 0, 32)
	mask = math.MaxUint32
	if hasMask && err == nil {
		mask, err = strconv.ParseUint(m, 0, 32)
	}
	return value, mask, err == nil
}

// writtenMarkTarget undoes what save does: "or" is set-xmark v/v, "xor" is
// set-xmark v/0.
func writtenMarkTarget(args []string) (string, bool) {
	if len(args) != 2 {
		return "", false
	}
	value, mask, ok := parseMark(args[1])
	switch {
	case !ok:
		return "", false
	case args[0] == "--or-mark", args[0] == "--set-xmark" && mask == value:
		return fmt.Sprintf("--or-mark 0x%08x", value), true
	case args[0] == "--xor-mark", args[0] == "--set-xmark" && mask == 0:
		return fmt.Sprintf("--xor-mark 0x%08x", value), true
	}
	return "", false
}

// oddsUnit is what the kernel counts the probability of statistic in.
const oddsUnit = 1 << 31

// Probability is part/whole as it is written, which Canonical leaves alone: 1/n with
// ten digits, as kube-proxy writes it, and else ten digits of what the kernel keeps
// of it. part is above 0 and below whole.
func Probability(part, whole int) string {
	if whole%part == 0 {
		return strconv.FormatFloat(1/float64(whole/part), 'f', 10, 64)
	}
	return kept(float64(part) / float64(whole))
}

// kept is ten digits of what the kernel keeps of a probability.
func kept(p float64) string {
	return strconv.FormatFloat(math.Round(p*oddsUnit)/oddsUnit, 'f', 10, 64)
}

// writtenProbability maps a probability to 1/n with ten digits if the kernel,
// which keeps 31 bits, cannot tell the two apart, and else to the form of
// Probability.
func writtenProbability(s string) (string, bool) {
	p, err := strconv.ParseFloat(s, 64)
	if err != nil || !(p >= 1e-9 && p <= 1) {
		return "", false
	}
	n := math.Round(1 / p)
	nearest := strconv.FormatFloat(1/n, 'f', 10, 64)
	q, err := strconv.ParseFloat(nearest, 64)
	if err == nil && math.Abs(math.Round(q*oddsUnit)-math.Round(p*oddsUnit)) <= 1 {
		return nearest, true
	}
	return kept(p), true
}
