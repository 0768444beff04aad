package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"portolan/kernel/ipset"
	"portolan/kernel/ipvs"
)

// target is what answers on one address and port: the body of an object of
// serversContainer.
type target struct {
	// server is the virtual server; without Scheduler there is none, and packets
	// meet the rules of the sets alone.
	server  ipvs.Server
	members [setCount][]netip.Prefix // by set; of a set without sources one zero value
	reals   []ipvs.Real
}

func (t *target) serves() bool { return t.server.Scheduler != "" }

// join makes the target a member of a set.
func (t *target) join(id setID, sources ...netip.Prefix) {
	if sources == nil {
		sources = []netip.Prefix{{}}
	}
	t.members[id] = append(t.members[id], sources...)
}

// entries are the target's entries of one set.
func (t *target) entries(id setID) []ipset.Entry {
	var out []ipset.Entry
	for _, source := range t.members[id] {
		out = append(out, ipset.Entry{Addr: t.server.ID.Addr.Addr(), Protocol: uint8(t.server.ID.Protocol),
			Port: t.server.ID.Addr.Port(), Source: source})
	}
	return out
}

// name is the key of a target: "10.96.0.1 tcp 80".
func nameOf(id ipvs.ID) string {
	return id.Addr.Addr().String() + " " + id.Protocol.String() + " " + strconv.Itoa(int(id.Addr.Port()))
}

// body writes a target: name, scheduler, sets and real servers, in an order that
// depends on nothing else:
//
//	10.96.0.1 tcp 80: rr persistent 10800 | KUBE-CLUSTER-IP | 10.244.1.2:80 10.244.2.2:80
//
// Without a virtual server the scheduler is "-". A real server's weight other than 1
// stands behind "#", and so does its forwarding when it is not NAT.
func (b *Backend) body(t *target) string {
	words := []string{nameOf(t.server.ID) + ":"}
	if !t.serves() {
		words = append(words, "-")
	} else {
		words = append(words, t.server.Scheduler)
		if p := t.server.Persistence; p > 0 {
			words = append(words, "persistent", strconv.Itoa(int(p/time.Second)))
		}
		if f := t.server.Flags; f != 0 {
			words = append(words, "flags", strconv.FormatUint(uint64(f), 16))
		}
	}
	words = append(words, "|")
	for id, sources := range t.members {
		if len(sources) == 0 {
			continue
		}
		word := b.name(setID(id))
		if sources[0].IsValid() {
			word += "=" + joinSorted(sources)
		}
		words = append(words, word)
	}
	words = append(words, "|")
	reals := make([]string, len(t.reals))
	for i, r := range t.reals {
		reals[i] = realText(r)
	}
	slices.Sort(reals)
	return strings.Join(append(words, reals...), " ")
}

func joinSorted(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ",")
}

func realText(r ipvs.Real) string {
	text := r.Addr.String()
	if r.Weight != 1 || r.Forwarding != 0 {
		text += "#" + strconv.FormatUint(uint64(r.Weight), 10)
	}
	if r.Forwarding != 0 {
		text += "#" + strconv.FormatUint(uint64(r.Forwarding), 10)
	}
	return text
}

// parseTarget reads what body writes.
func (b *Backend) parseTarget(body string) (*target, error) {
	t := &target{}
	// An IPv6 address may end in "::", so the first ": " need not be the name's end.
	address, rest, _ := strings.Cut(body, " ")
	name, rest, _ := strings.Cut(rest, ": ")
	name = address + " " + name
	var err error
	if t.server.ID, err = parseName(name); err != nil {
		return nil, err
	}
	parts := strings.Split(rest, "|")
	if len(parts) != 3 {
		return nil, fmt.Errorf("ipvs: %q says nothing about a virtual server", body)
	}
	if err := t.parseServer(strings.Fields(parts[0])); err != nil {
		return nil, err
	}
	for _, word := range strings.Fields(parts[1]) {
		name, sources, _ := strings.Cut(word, "=")
		s := b.setOf[name]
		if s == nil {
			return nil, fmt.Errorf("ipvs: no set is called %q", name)
		}
		if sources == "" {
			t.join(s.id)
			continue
		}
		for text := range strings.SplitSeq(sources, ",") {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("ipvs: source of set %s: %w", name, err)
			}
			t.join(s.id, p)
		}
	}
	for _, text := range strings.Fields(parts[2]) {
		r, err := parseReal(text)
		if err != nil {
			return nil, err
		}
		t.reals = append(t.reals, r)
	}
	return t, nil
}

var protocols = map[string]ipvs.Protocol{"tcp": ipvs.TCP, "udp": ipvs.UDP, "sctp": ipvs.SCTP}

// parseName reads the name of a target: "ADDRESS PROTOCOL PORT".
func parseName(name string) (ipvs.ID, error) {
	words := strings.Fields(name)
	if len(words) != 3 {
		return ipvs.ID{}, fmt.Errorf("ipvs: %q is no address, protocol and port", name)
	}
	addr, err := netip.ParseAddr(words[0])
	if err != nil {
		return ipvs.ID{}, fmt.Errorf("ipvs: virtual server %q: %w", name, err)
	}
	port, err := strconv.ParseUint(words[2], 10, 16)
	if err != nil {
		return ipvs.ID{}, fmt.Errorf("ipvs: virtual server %q: %w", name, err)
	}
	protocol := protocols[words[1]]
	if protocol == 0 {
		return ipvs.ID{}, fmt.Errorf("ipvs: virtual server %q: unknown protocol", name)
	}
	return ipvs.ID{Protocol: protocol, Addr: netip.AddrPortFrom(addr, uint16(port))}, nil
}

// parseServer reads a scheduler with its properties, or "-" where nothing serves.
func (t *target) parseServer(words []string) error {
	if len(words) == 1 && words[0] == "-" {
		return nil
	}
	if len(words)%2 == 0 {
		return fmt.Errorf("ipvs: %q is no scheduler with its properties", strings.Join(words, " "))
	}
	t.server.Scheduler = words[0]
	for i := 1; i < len(words); i += 2 {
		base := map[string]int{"persistent": 10, "flags": 16}[words[i]]
		n, err := strconv.ParseUint(words[i+1], max(base, 2), 32)
		switch {
		case err != nil:
			return fmt.Errorf("ipvs: %s %q is no number", words[i], words[i+1])
		case words[i] == "persistent":
			t.server.Persistence = time.Duration(n) * time.Second
		case words[i] == "flags":
			t.server.Flags = uint32(n)
		default:
			return fmt.Errorf("ipvs: unknown property %q of a scheduler", words[i])
		}
	}
	return nil
}

// parseReal reads "ADDRESS:PORT", with "#WEIGHT" and "#FORWARDING" where these are not the
// usual.
func parseReal(text string) (ipvs.Real, error) {
	parts := strings.Split(text, "#")
	addr, err := netip.ParseAddrPort(parts[0])
	if err != nil {
		return ipvs.Real{}, fmt.Errorf("ipvs: real server %q: %w", text, err)
	}
	r := ipvs.Real{Addr: addr, Weight: 1}
	for i, number := range []*uint32{&r.Weight, &r.Forwarding} {
		if len(parts) <= i+1 {
			break
		}
		n, err := strconv.ParseUint(parts[i+1], 10, 32)
		if err != nil {
			return ipvs.Real{}, fmt.Errorf("ipvs: real server %q: %w", text, err)
		}
		*number = uint32(n)
	}
	return r, nil
}
