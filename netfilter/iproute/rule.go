package iproute

import (
	"fmt"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// Rules reads `ip rule`. Rules of `ip -6 rule` look the same; what tells them
// apart is only an address, so a rule without one counts for both families.
func Rules(file, text string) ([]netfilter.RoutingRule, error) {
	var out []netfilter.RoutingRule
	err := each(file, text, func(line string, f []string) error {
		r, err := rule(f)
		if err != nil {
			return err
		}
		r.Text = strings.Join(f, " ")
		out = append(out, r)
		return nil
	})
	return out, err
}

// rule reads one line: priority, selectors, action.
func rule(f []string) (netfilter.RoutingRule, error) {
	r := netfilter.RoutingRule{SuppressPrefix: -1}
	prio, ok := strings.CutSuffix(f[0], ":")
	n, err := strconv.ParseUint(prio, 10, 32)
	if !ok || err != nil {
		return r, fmt.Errorf("%q is no priority", f[0])
	}
	r.Priority = uint32(n)
	for i := 1; i < len(f); i++ {
		value := ""
		if i+1 < len(f) {
			value = f[i+1]
		}
		switch f[i] {
		case "not":
			r.Not = true
			continue
		case "nop":
			r.Action = netfilter.RuleNop
			continue
		case "blackhole":
			r.Action = netfilter.RuleBlackhole
			continue
		case "unreachable":
			r.Action = netfilter.RuleUnreachable
			continue
		case "prohibit":
			r.Action = netfilter.RuleProhibit
			continue
		case "from", "to", "iif", "oif", "fwmark", "tos", "dsfield", "ipproto", "sport", "dport", "uidrange", "lookup", "table", "goto", "suppress_prefixlength":
		default:
			continue // proto, [detached], l3mdev and the like
		}
		if err := ruleValue(&r, f[i], value); err != nil {
			return r, fmt.Errorf("%s: %w", f[i], err)
		}
		i++
	}
	return r, nil
}

// ruleValue notes the value behind a word: a selector of the rule, or what it does.
func ruleValue(r *netfilter.RoutingRule, key, value string) (err error) {
	switch key {
	case "from", "to":
		if value == "all" {
			return nil
		}
		p, err := prefix(value)
		if err != nil {
			return err
		}
		p = p.Masked()
		r.Family = netfilter.FamilyOf(p.Addr())
		if key == "from" {
			r.From = p
		} else {
			r.To = p
		}
	case "iif":
		r.IIF = value
	case "oif":
		r.OIF = value
	case "fwmark":
		v, m, masked := strings.Cut(value, "/")
		r.Mark, err = number32(v)
		r.MarkMask = 0xffffffff
		if masked && err == nil {
			r.MarkMask, err = number32(m)
		}
	case "tos", "dsfield":
		n, err := strconv.ParseUint(value, 0, 8)
		r.TOS = uint8(n)
		return err
	case "ipproto":
		r.Proto, err = protocol(value)
	case "sport":
		r.SrcPorts, err = ports(value)
	case "dport":
		r.DstPorts, err = ports(value)
	case "uidrange":
		a, b, _ := strings.Cut(value, "-")
		lo, err1 := number32(a)
		hi, err2 := number32(b)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("%q is no range", value)
		}
		r.UIDs = &netfilter.NumberRange{First: uint64(lo), Last: uint64(hi)}
	case "lookup", "table":
		r.Table = table(value)
	case "goto":
		r.Action = netfilter.RuleGoto
		r.Goto, err = number32(value)
	case "suppress_prefixlength":
		r.SuppressPrefix, err = strconv.Atoi(value)
	}
	return err
}

func protocol(w string) (uint8, error) {
	if n, ok := netfilter.ProtoByName(w); ok {
		return n, nil
	}
	n, err := strconv.ParseUint(w, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("%q is no protocol", w)
	}
	return uint8(n), nil
}

func number32(w string) (uint32, error) {
	n, err := strconv.ParseUint(w, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", w)
	}
	return uint32(n), nil
}

func ports(w string) (netfilter.PortRange, error) {
	a, b, ranged := strings.Cut(w, "-")
	lo, err := strconv.ParseUint(a, 10, 16)
	hi := lo
	if ranged && err == nil {
		hi, err = strconv.ParseUint(b, 10, 16)
	}
	if err != nil {
		return netfilter.PortRange{}, fmt.Errorf("%q is no port", w)
	}
	return netfilter.PortRange{First: uint16(lo), Last: uint16(hi)}, nil
}
