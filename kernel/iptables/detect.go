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
	listed  map[Family]bool // the variant's nat tables that its programs listed
}

// Listed tells whether Detect has listed the nat table of a family, so that its
// programs and its table are known to be there.
func (h Host) Listed(f Family) bool { return h.listed[f] }

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
	installed      bool
	rules          int
	kubelet, proxy bool
	listed         map[Family]bool // nat
}

// Detect finds the variant that the host already uses: the one with kubelet's
// hint, else with our canary, else with more rules, else what "iptables" on the
// PATH is. A program is started for a family of a variant only where there is
// something to list.
func Detect(ctx context.Context) (Host, error) {
	legacy, err := look(ctx, Legacy)
	if err != nil {
		return Host{}, err
	}
	nft, err := look(ctx, NFT)
	if err != nil {
		return Host{}, err
	}
	version, variant, verr := plainVariant(ctx)
	h := choose(legacy, nft, variant)
	h.version = version
	if h.listed = legacy.listed; h.Variant == NFT {
		h.listed = nft.listed
	}
	if !legacy.installed && !nft.installed {
		if verr != nil {
			return Host{}, fmt.Errorf("iptables: detect: neither iptables-nft-restore nor iptables-legacy-restore nor iptables is there: %w", verr)
		}
		h.plain = true
		return h, nil
	}
	if v, _, err := programVersion(ctx, "iptables-"+string(h.Variant)); err == nil {
		h.version = v
	}
	return h, nil
}

func choose(legacy, nft holding, installed Variant) Host {
	var h Host
	switch {
	case !legacy.installed && !nft.installed:
		h.Variant, h.Reason = installed, "it is what iptables is here"
	case !legacy.installed:
		h.Variant, h.Reason = NFT, "only the nft variant is installed"
	case !nft.installed:
		h.Variant, h.Reason = Legacy, "only the legacy variant is installed"
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

func look(ctx context.Context, v Variant) (holding, error) {
	h := holding{listed: map[Family]bool{}}
	for _, f := range []Family{IPv4, IPv6} {
		t := NewTool(f, v)
		if _, err := exec.LookPath(t.SaveProgram); err != nil {
			continue
		}
		if _, err := exec.LookPath(t.RestoreProgram); err != nil {
			continue
		}
		h.installed = true
		// A table that cannot be shown says nothing about who uses iptables.
		if err := h.list(ctx, t); err != nil && f == IPv4 && !errors.Is(err, ErrNotShown) {
			return h, fmt.Errorf("iptables: detect: %w", err)
		}
	}
	return h, nil
}

// list takes in what the tables of one family hold.
func (h *holding) list(ctx context.Context, t *Tool) error {
	tables := t.Filled("mangle", "nat", "filter")
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
	h.listed[t.Family] = slices.Contains(tables, "nat")
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
// same file, without a version, or else what it says of itself. Where programs of both are
// that file, it is a wrapper that chooses by itself.
func plainVariant(ctx context.Context) (Version, Variant, error) {
	plain := programFile("iptables")
	isNFT, isLegacy := os.SameFile(plain, programFile("iptables-nft")), os.SameFile(plain, programFile("iptables-legacy"))
	switch {
	case isNFT && !isLegacy:
		return Version{}, NFT, nil
	case isLegacy && !isNFT:
		return Version{}, Legacy, nil
	}
	return programVersion(ctx, "iptables")
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
	if err != nil {
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
