package iproute

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// table gives a routing table's number. Names that only the host's rt_tables
// explains get a negative number of their own.
func table(w string) int {
	switch w {
	case "", "main":
		return netfilter.TableMain
	case "local":
		return netfilter.TableLocal
	case "default":
		return netfilter.TableDefault
	}
	if n, err := strconv.Atoi(w); err == nil && n > 0 {
		return n
	}
	h := fnv.New32a()
	h.Write([]byte(w))
	return -1 - int(h.Sum32()>>1)
}

// Routes reads `ip route`, of one table or with `table all`.
func Routes(file, text string) ([]netfilter.Route, error) {
	var out []netfilter.Route
	v6 := onlyIPv6(text)
	err := each(file, text, func(line string, f []string) error {
		if f[0] == "nexthop" {
			if len(out) == 0 {
				return fmt.Errorf("a nexthop without a route")
			}
			r := &out[len(out)-1]
			return addHop(r, f[1:])
		}
		r, err := route(f, v6)
		if err != nil {
			return err
		}
		r.Text = strings.Join(f, " ")
		out = append(out, r)
		return nil
	})
	return out, err
}

// onlyIPv6 tells of which family a default route without an address is.
func onlyIPv6(text string) bool {
	return strings.Contains(text, "::") && !strings.Contains(text, ".")
}

// route reads one line. Its type comes first, where it is not unicast.
func route(f []string, v6 bool) (netfilter.Route, error) {
	r := netfilter.Route{Table: netfilter.TableMain}
	if t, ok := netfilter.RouteTypeByName(f[0]); ok {
		r.Type = t
		f = f[1:]
	}
	if len(f) == 0 {
		return r, fmt.Errorf("a route without a destination")
	}
	var err error
	to := f[0]
	if to != "default" {
		if r.To, err = prefix(to); err != nil {
			return r, err
		}
		r.To = r.To.Masked()
	}
	if err := attributes(&r, f[1:]); err != nil {
		return r, err
	}
	if to == "default" {
		six := v6
		for _, a := range []netip.Addr{r.Via, r.Src} {
			if a.IsValid() {
				six = a.Is6()
			}
		}
		r.To = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if six {
			r.To = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
	}
	return r, nil
}

// attributes reads the words after a route's destination; unknown ones are
// skipped.
func attributes(r *netfilter.Route, f []string) error {
	var err error
	for i := 0; i < len(f); i++ {
		value := ""
		if i+1 < len(f) {
			value = f[i+1]
		}
		switch f[i] {
		case "nexthop":
			return addHop(r, f[i+1:])
		case "via":
			if value == "inet6" || value == "inet" {
				i++
				value = ""
				if i+1 < len(f) {
					value = f[i+1]
				}
			}
			if r.Via, err = netip.ParseAddr(value); err != nil {
				return fmt.Errorf("via: %q is no address", value)
			}
		case "dev":
			r.Dev = value
		case "src":
			if r.Src, err = netip.ParseAddr(value); err != nil {
				return fmt.Errorf("src: %q is no address", value)
			}
		case "metric":
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				return fmt.Errorf("metric: %q is no number", value)
			}
			r.Metric = uint32(n)
		case "table":
			r.Table = table(value)
		case "tos", "dsfield":
			n, err := strconv.ParseUint(value, 0, 8)
			if err != nil {
				return fmt.Errorf("tos: %q is no number", value)
			}
			r.TOS = uint8(n)
		case "onlink":
			r.Onlink = true
			continue
		default:
			continue
		}
		i++
	}
	return nil
}

// addHop reads what stands behind "nexthop", up to the next.
func addHop(r *netfilter.Route, f []string) error {
	h := netfilter.NextHop{Weight: 1}
	for i := 0; i+1 < len(f); i++ {
		switch f[i] {
		case "nexthop":
			r.Hops = append(r.Hops, h)
			return addHop(r, f[i+1:])
		case "via":
			a, err := netip.ParseAddr(f[i+1])
			if err != nil {
				return fmt.Errorf("via: %q is no address", f[i+1])
			}
			h.Via = a
		case "dev":
			h.Dev = f[i+1]
		case "weight":
			n, err := strconv.Atoi(f[i+1])
			if err != nil || n < 1 {
				return fmt.Errorf("weight: %q is no weight", f[i+1])
			}
			h.Weight = n
		}
	}
	r.Hops = append(r.Hops, h)
	return nil
}

// RouteN reads `route -n`.
func RouteN(file, text string) ([]netfilter.Route, error) {
	var out []netfilter.Route
	err := each(file, text, func(line string, f []string) error {
		if f[0] == "Kernel" || f[0] == "Destination" {
			return nil
		}
		if len(f) < 8 {
			return fmt.Errorf("%q is no line of route -n", line)
		}
		to, err1 := netip.ParseAddr(f[0])
		gw, err2 := netip.ParseAddr(f[1])
		mask, err3 := netip.ParseAddr(f[2])
		reject := strings.Contains(f[3], "!")
		if err1 != nil || err3 != nil || !to.Is4() || !mask.Is4() || (err2 != nil && !reject) {
			return fmt.Errorf("%q has no destination, gateway and mask", line)
		}
		bits := 0
		for m := mask.As4(); bits < 32 && m[bits/8]&(1<<(7-bits%8)) != 0; bits++ {
		}
		metric, err := strconv.ParseUint(f[4], 10, 32)
		if err != nil {
			return fmt.Errorf("metric: %q is no number", f[4])
		}
		r := netfilter.Route{To: netip.PrefixFrom(to, bits).Masked(), Table: netfilter.TableMain, Dev: f[7], Metric: uint32(metric), Text: strings.Join(f, " ")}
		if strings.Contains(f[3], "G") && gw.IsValid() {
			r.Via = gw
		}
		if reject {
			r.Type, r.Dev = netfilter.RouteUnreachable, ""
		}
		out = append(out, r)
		return nil
	})
	return out, err
}
