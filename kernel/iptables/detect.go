package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Host says which iptables a host uses.
type Host struct {
	Variant Variant
	// Reason says why in words; Warning is not empty when both variants hold
	// rules, which then both see every packet.
	Reason, Warning string

	version Version
	plain   bool            // only programs without a variant in their name
	ready   map[Family]bool // see Ready
}

// Ready tells whether Detect knows that the variant's programs for a family are there,
// and its nat table with rules in it.
func (h Host) Ready(f Family) bool { return h.ready[f] }

// Tool returns the programs for one family.
func (h Host) Tool(f Family) *Tool {
	t := NewTool(f, h.Variant)
	t.Version = h.version
	if h.plain {
		base := strings.TrimSuffix(t.SaveProgram, "-"+string(h.Variant)+"-save")
		t.RestoreProgram, t.SaveProgram = base+"-restore", base+"-save"
	}
	return t
}

// Chains in mangle by which programs mark the variant they use: kubelet for
// everybody (KEP-3178), and this program or kube-proxy for its next start.
var (
	kubeletHints = []string{"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"}
	proxyHints   = []string{"KUBE-PROXY-CANARY"}
)

// holding is what one variant holds, over both families.
type holding struct {
	tools  []*Tool         // those that are installed
	filled bool            // some table
	ready  map[Family]bool // see Host.Ready
	rules  int             // if they were counted

	kubelet, proxy bool // by their hints
}

func (h holding) installed() bool { return len(h.tools) > 0 }

// Detect finds the variant that the host already uses: the only one that holds
// anything, else the one with kubelet's hint, else with our canary, else with more
// rules, else what "iptables" on the PATH is. Tables are listed only where both hold
// something, or where those of nft have no hint and may be somebody else's: with
// 10,000 Services that takes a second or two, and more with nft.
func Detect(ctx context.Context) (Host, error) {
	legacy, nft := look(Legacy), look(NFT)
	if nft.filled && (legacy.filled || !nft.kubelet && !nft.proxy) {
		for _, h := range []*holding{&legacy, &nft} {
			if err := h.list(ctx); err != nil {
				return Host{}, fmt.Errorf("iptables: detect: %w", err)
			}
		}
	}
	variant, verr := plainVariant(ctx)
	h := choose(legacy, nft, variant)
	if h.ready = legacy.ready; h.Variant == NFT {
		h.ready = nft.ready
	}
	programs := []string{"iptables-" + string(h.Variant), h.Tool(IPv4).RestoreProgram}
	if h.plain = !legacy.installed() && !nft.installed(); h.plain {
		if verr != nil {
			return Host{}, fmt.Errorf("iptables: detect: neither iptables-nft-restore nor iptables-legacy-restore nor iptables is there: %w", verr)
		}
		programs = []string{"iptables"}
	}
	var err error
	if h.version, err = anyVersion(ctx, programs); err != nil {
		return Host{}, err
	}
	return h, nil
}

// anyVersion asks the programs, which are of one version, until one tells it.
func anyVersion(ctx context.Context, programs []string) (v Version, err error) {
	var errs []error
	for _, p := range programs {
		if v, _, err = programVersion(ctx, p); err == nil {
			return v, nil
		}
		errs = append(errs, err)
	}
	return Version{}, errors.Join(errs...)
}

// choose says which variant to use, so that all who write rules on this host use one.
// What is installed decides first; then what holds anything, which kubelet uses, where
// Service rules are, and which holds more rules; at last what the program named iptables
// is.
func choose(legacy, nft holding, installed Variant) Host {
	var h Host
	switch {
	case !legacy.installed() && !nft.installed():
		h.Variant, h.Reason = installed, "it is what iptables is here"
	case !legacy.installed():
		h.Variant, h.Reason = NFT, "only the nft variant is installed"
	case !nft.installed():
		h.Variant, h.Reason = Legacy, "only the legacy variant is installed"
	case legacy.filled && !nft.filled:
		h.Variant, h.Reason = Legacy, "nft tables hold nothing, and legacy ones do"
	case nft.kubelet:
		h.Variant, h.Reason = NFT, "kubelet uses it"
	case legacy.kubelet:
		h.Variant, h.Reason = Legacy, "kubelet uses it"
	case nft.proxy != legacy.proxy:
		h.Variant, h.Reason = NFT, "Service rules are there already"
		if legacy.proxy {
			h.Variant = Legacy
		}
	case nft.rules != legacy.rules:
		h.Variant, h.Reason = NFT, fmt.Sprintf("it holds %d rules, legacy %d", nft.rules, legacy.rules)
		if legacy.rules > nft.rules {
			h.Variant, h.Reason = Legacy, fmt.Sprintf("it holds %d rules, nft %d", legacy.rules, nft.rules)
		}
	case installed != "":
		h.Variant, h.Reason = installed, "no rules anywhere, and it is what iptables is here"
	default:
		h.Variant, h.Reason = NFT, "no rules anywhere"
	}
	if legacy.rules > 0 && nft.rules > 0 {
		h.Warning = fmt.Sprintf("both iptables variants hold rules (legacy %d, nft %d); a packet passes both, and rules of the other one can undo ours", legacy.rules, nft.rules)
	}
	return h
}

// hintTables are those that are looked at, hints first.
var hintTables = []string{"mangle", "nat", "filter"}

// look asks the kernel, and starts no program. What legacy chains are called, it does
// not tell.
func look(v Variant) holding {
	h := holding{ready: map[Family]bool{}}
	for _, f := range []Family{IPv4, IPv6} {
		t := NewTool(f, v)
		if t.Missing() != nil {
			continue
		}
		h.tools = append(h.tools, t)
		filled, err := t.filled(hintTables)
		h.filled = h.filled || len(filled) > 0
		h.ready[f] = err == nil && slices.Contains(filled, "nat")
		if v == NFT && slices.Contains(filled, "mangle") {
			h.kubelet = h.kubelet || t.hasOneOf(kubeletHints)
			h.proxy = h.proxy || t.hasOneOf(proxyHints)
		}
	}
	return h
}

// Missing tells which of the two programs is not there.
func (t *Tool) Missing() error {
	for _, program := range []string{t.SaveProgram, t.RestoreProgram} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("iptables: %w", err)
		}
	}
	return nil
}

// list takes in what the tables of a variant hold.
func (h *holding) list(ctx context.Context) error {
	for _, t := range h.tools {
		// A table that cannot be shown says nothing about who uses iptables.
		if err := h.listFamily(ctx, t); err != nil && t.Family == IPv4 && !errors.Is(err, ErrNotShown) {
			return err
		}
	}
	return nil
}

// listFamily counts the rules of one family and looks for the chains that tell kubelet
// and a Service proxy.
func (h *holding) listFamily(ctx context.Context, t *Tool) error {
	h.ready[t.Family] = false // until it is listed
	tables := t.Filled(hintTables...)
	if len(tables) == 0 {
		return nil
	}
	table := ""
	for line, err := range t.SaveAll(ctx, tables...) {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, "-A "):
			h.rules++
		case table == "mangle" && strings.HasPrefix(line, ":"):
			chain, _, _ := strings.Cut(line[1:], " ")
			h.kubelet = h.kubelet || slices.Contains(kubeletHints, chain)
			h.proxy = h.proxy || slices.Contains(proxyHints, chain)
		}
	}
	h.ready[t.Family] = slices.Contains(tables, "nat")
	return nil
}

// Loaded tells whether the table is there, without loading it. Tables of nft
// cost nothing and always count as loaded.
func (t *Tool) Loaded(table string) bool {
	if t.Variant == NFT {
		return true
	}
	file := "/proc/thread-self/net/ip_tables_names"
	if t.Family == IPv6 {
		file = "/proc/thread-self/net/ip6_tables_names"
	}
	text, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Fields(string(text)), table)
}

var versionText = regexp.MustCompile(`v(\d+)\.(\d+)(?:\.(\d+))?(?: \((legacy|nf_tables)\))?`)

// plainVariant is what "iptables" on the PATH is: of the variant whose program is the
// same file, or else what it says of itself. Where programs of both are that file, it is
// a wrapper that chooses by itself.
func plainVariant(ctx context.Context) (Variant, error) {
	plain := programFile("iptables")
	isNFT, isLegacy := os.SameFile(plain, programFile("iptables-nft")), os.SameFile(plain, programFile("iptables-legacy"))
	switch {
	case isNFT && !isLegacy:
		return NFT, nil
	case isLegacy && !isNFT:
		return Legacy, nil
	}
	_, variant, err := programVersion(ctx, "iptables")
	return variant, err
}

// programFile is the file behind the links of a program on the PATH; nil for none.
func programFile(program string) os.FileInfo {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// programVersion runs PROGRAM --version.
func programVersion(ctx context.Context, program string) (Version, Variant, error) {
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return Version{}, "", fmt.Errorf("iptables: %s --version: %w: %s", program, err, oneLine(string(exit.Stderr)))
	case err != nil:
		return Version{}, "", fmt.Errorf("iptables: %s --version: %w", program, err)
	}
	return parseVersion(string(out))
}

// parseVersion reads "iptables v1.8.9 (nf_tables)"; programs before 1.8 name no
// variant and are legacy.
func parseVersion(text string) (Version, Variant, error) {
	m := versionText.FindStringSubmatch(text)
	if m == nil {
		return Version{}, "", errors.New("iptables: no version in " + strconv.Quote(text))
	}
	var v Version
	for i := range v {
		v[i], _ = strconv.Atoi(m[i+1]) // digits; a missing patch level is 0
	}
	if m[4] == "nf_tables" {
		return v, NFT, nil
	}
	return v, Legacy, nil
}
