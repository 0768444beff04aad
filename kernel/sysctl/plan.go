// Package sysctl decides which numbers of the kernel to write, and writes them:
// files below /proc and /sys that hold one integer. What an admin has set higher
// is not lowered.
package sysctl

// Lowering says when a value may be made less than it is.
type Lowering int

// Lowerings. FromDefault lowers what the kernel chose and nobody else.
const (
	Never Lowering = iota
	FromDefault
	Always
)

// Setting is a number that is wanted in a file.
type Setting struct {
	File    string // below the root, as "proc/sys/net/ipv4/ip_forward"
	Value   int
	Lower   Lowering
	Default int // the kernel's own value, for FromDefault
}

// Change is a Setting, and what its file holds now.
type Change struct {
	Setting
	Now int
}

// Decision is what to do about some Settings.
type Decision struct {
	Write []Change // in the order of the Settings
	// Kept are higher values that somebody chose; they stay.
	Kept []Change
	// Unknown are the files that cannot be read, each an error.
	Unknown []error
}

// Plan compares what is wanted with what is there. Values that are as wanted are
// in no list.
func Plan(settings []Setting, read func(file string) (int, error)) Decision {
	var d Decision
	for _, s := range settings {
		now, err := read(s.File)
		switch c := (Change{s, now}); {
		case err != nil:
			d.Unknown = append(d.Unknown, err)
		case now == s.Value:
		case now > s.Value && (s.Lower == Never || s.Lower == FromDefault && now != s.Default):
			d.Kept = append(d.Kept, c)
		default:
			d.Write = append(d.Write, c)
		}
	}
	return d
}
