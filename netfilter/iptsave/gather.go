package iptsave

import (
	"math"
	"net/netip"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// pending is a module whose options together make one match.
type pending interface {
	option(p *ruleReader, opt string) bool
	finish() netfilter.Match
}

// gathered makes the gatherers by module name.
var gathered = map[string]func() pending{
	"addrtype": func() pending { return &addrtype{} }, "statistic": func() pending { return &statistic{} },
	"set": func() pending { return &set{} }, "recent": func() pending { return &recent{} },
	"physdev": func() pending { return &physdev{} }, "owner": func() pending { return &owner{} },
	"rpfilter": func() pending { return &rpfilter{} }, "socket": func() pending { return &socket{} },
	"policy": func() pending { return &policy{} }, "ipvs": func() pending { return &ipvs{} },
	"limit": metered("limit"), "hashlimit": metered("hashlimit"), "connlimit": metered("connlimit"),
	"connbytes": metered("connbytes"), "quota": metered("quota"), "time": metered("time"),
}

var kindNames = map[string]netfilter.AddrKind{
	"UNSPEC": netfilter.KindUnspec, "UNICAST": netfilter.KindUnicast, "LOCAL": netfilter.KindLocal, "BROADCAST": netfilter.KindBroadcast,
	"ANYCAST": netfilter.KindAnycast, "MULTICAST": netfilter.KindMulticast, "BLACKHOLE": netfilter.KindBlackhole,
	"UNREACHABLE": netfilter.KindUnreachable, "PROHIBIT": netfilter.KindProhibit, "THROW": netfilter.KindThrow,
	"NAT": netfilter.KindNAT, "XRESOLVE": netfilter.KindXResolve,
}

type addrtype struct{ m netfilter.AddrType }

func (a *addrtype) finish() netfilter.Match { return a.m }

func (a *addrtype) option(p *ruleReader, opt string) bool {
	switch opt {
	case "--src-type", "--dst-type":
		w := p.value(opt)
		k, _, ok := parseBits(kindNames, w)
		if !ok {
			p.fail("%s: %q is no address type", opt, w)
		}
		if opt == "--src-type" {
			a.m.Src, a.m.SrcNot = k, p.optNot
		} else {
			a.m.Dst, a.m.DstNot = k, p.optNot
		}
	case "--limit-iface-in":
		a.m.LimitIn = true
	case "--limit-iface-out":
		a.m.LimitOut = true
	default:
		return false
	}
	return true
}

// statistic is the match of that name, in either of its modes.
type statistic struct {
	nth bool
	r   netfilter.StatisticRandom
	n   netfilter.StatisticNth
}

func (s *statistic) finish() netfilter.Match {
	if s.nth {
		return s.n
	}
	return s.r
}

func (s *statistic) option(p *ruleReader, opt string) bool {
	switch opt {
	case "--mode":
		w := p.value(opt)
		if w != "random" && w != "nth" {
			p.fail("statistic mode %q is neither random nor nth", w)
		}
		s.nth = w == "nth"
	case "--probability":
		w := p.value(opt)
		f, err := strconv.ParseFloat(w, 64)
		if p.err == nil && (err != nil || math.IsNaN(f) || f < 0 || f > 1) {
			p.fail("%q is no probability", w)
			return true
		}
		s.r.Odds, s.r.Not = uint32(math.Round(f*(1<<31))), p.optNot
	case "--every":
		s.n.Every, s.n.Not = uint32(p.number(p.value(opt), 32)), p.optNot
	case "--packet":
		s.n.Packet = uint32(p.number(p.value(opt), 32))
	default:
		return false
	}
	return true
}

type set struct{ m netfilter.SetMatch }

func (s *set) finish() netfilter.Match { return s.m }

func (s *set) option(p *ruleReader, opt string) bool {
	switch opt {
	case "--match-set", "--set":
		s.m.Name, s.m.Not = p.value(opt), p.optNot
		for _, side := range strings.Split(p.value(opt), ",") {
			switch side {
			case "src":
				s.m.Dims = append(s.m.Dims, netfilter.SourceSide)
			case "dst":
				s.m.Dims = append(s.m.Dims, netfilter.DestinationSide)
			default:
				p.fail("set %s: %q is neither src nor dst", s.m.Name, side)
			}
		}
	case "--return-nomatch":
		s.m.ReturnNomatch = true
	case "--update-counters", "--update-subcounters":
	case "--packets-eq", "--packets-lt", "--packets-gt", "--bytes-eq", "--bytes-lt", "--bytes-gt":
		s.m.Counters = strings.TrimSpace(s.m.Counters + " " + opt + " " + p.value(opt))
	default:
		return false
	}
	return true
}

type recent struct{ m netfilter.Recent }

func (r *recent) finish() netfilter.Match {
	if r.m.Name == "" {
		r.m.Name = "DEFAULT"
	}
	return r.m
}

func (r *recent) option(p *ruleReader, opt string) bool {
	switch opt {
	case "--set":
		r.m.Op, r.m.Not = netfilter.RecentSet, p.optNot
	case "--rcheck":
		r.m.Op, r.m.Not = netfilter.RecentCheck, p.optNot
	case "--update":
		r.m.Op, r.m.Not = netfilter.RecentUpdate, p.optNot
	case "--remove":
		r.m.Op, r.m.Not = netfilter.RecentRemove, p.optNot
	case "--name":
		r.m.Name = p.value(opt)
	case "--seconds":
		r.m.Seconds = uint32(p.number(p.value(opt), 32))
	case "--hitcount":
		r.m.HitCount = uint32(p.number(p.value(opt), 32))
	case "--reap":
		r.m.Reap = true
	case "--rttl":
		r.m.TTL = true
	case "--rsource":
		r.m.Side = netfilter.SourceSide
	case "--rdest":
		r.m.Side = netfilter.DestinationSide
	case "--mask":
		w := p.value(opt)
		a, err := netip.ParseAddr(w)
		if err != nil {
			p.fail("recent: %q is no mask", w)
		}
		r.m.Mask = a
	default:
		return false
	}
	return true
}

type physdev struct{ m netfilter.PhysDev }

func (d *physdev) finish() netfilter.Match { return d.m }

func (d *physdev) option(p *ruleReader, opt string) bool {
	yes := !p.optNot
	switch opt {
	case "--physdev-in":
		name := p.value(opt)
		d.m.In = &netfilter.Interface{Name: name, In: true, Not: p.optNot}
	case "--physdev-out":
		name := p.value(opt)
		d.m.Out = &netfilter.Interface{Name: name, Not: p.optNot}
	case "--physdev-is-in":
		d.m.IsIn = &yes
	case "--physdev-is-out":
		d.m.IsOut = &yes
	case "--physdev-is-bridged":
		d.m.IsBridged = &yes
	default:
		return false
	}
	return true
}

type owner struct{ m netfilter.Owner }

func (o *owner) finish() netfilter.Match { return o.m }

func (o *owner) option(p *ruleReader, opt string) bool {
	yes := !p.optNot
	switch opt {
	case "--uid-owner", "--gid-owner":
		w := strings.Replace(p.value(opt), "-", ":", 1)
		r, ok := parseNumbers(w)
		if !ok {
			p.addUnknown(opt, w, "the user or group is not given by number")
			return true
		}
		if opt == "--uid-owner" {
			o.m.UIDs, o.m.UIDNot = &r, p.optNot
		} else {
			o.m.GIDs, o.m.GIDNot = &r, p.optNot
		}
	case "--socket-exists":
		o.m.Exists = &yes
	case "--suppl-groups":
		o.m.SupplementaryGID = true
	default:
		return false
	}
	return true
}

type rpfilter struct{ m netfilter.RPFilter }

func (r *rpfilter) finish() netfilter.Match { return r.m }

func (r *rpfilter) option(_ *ruleReader, opt string) bool {
	switch opt {
	case "--loose":
		r.m.Loose = true
	case "--validmark":
		r.m.ValidMark = true
	case "--accept-local":
		r.m.AcceptLocal = true
	case "--invert":
		r.m.Invert = true
	default:
		return false
	}
	return true
}

type socket struct{ m netfilter.Socket }

func (s *socket) finish() netfilter.Match { return s.m }

func (s *socket) option(_ *ruleReader, opt string) bool {
	switch opt {
	case "--transparent":
		s.m.Transparent = true
	case "--nowildcard":
		s.m.NoWildcard = true
	case "--restore-skmark":
		s.m.RestoreMark = true
	default:
		return false
	}
	return true
}

type policy struct{ m netfilter.IPsecPolicy }

func (c *policy) finish() netfilter.Match { return c.m }

func (c *policy) option(p *ruleReader, opt string) bool {
	switch opt {
	case "--dir":
		c.m.Out = p.value(opt) == "out"
	case "--pol":
		c.m.None = (p.value(opt) == "none") != p.optNot
	case "--strict", "--next":
	case "--reqid", "--spi", "--proto", "--mode", "--tunnel-src", "--tunnel-dst":
		c.m.Text = strings.TrimSpace(c.m.Text + " " + opt + " " + p.value(opt))
	default:
		return false
	}
	return true
}

type ipvs struct{ m netfilter.IPVS }

func (v *ipvs) finish() netfilter.Match { return v.m }

func (v *ipvs) option(p *ruleReader, opt string) bool {
	switch opt {
	case "--ipvs":
		v.m.Not = p.optNot
	case "--vproto", "--vaddr", "--vport", "--vdir", "--vmethod", "--vportctl":
		v.m.Text = strings.TrimSpace(v.m.Text + " " + opt + " " + p.value(opt))
	default:
		return false
	}
	return true
}

// meter gathers the options of the matches that count or look at the clock.
type meter struct{ m netfilter.Metered }

func metered(module string) func() pending {
	return func() pending {
		return &meter{netfilter.Metered{Module: module, WithinBudget: true, Clock: module == "time"}}
	}
}

func (c *meter) finish() netfilter.Match { return c.m }

// withoutValue lists the options of these modules that take none.
var withoutValue = map[string]bool{
	"--connlimit-saddr": true, "--connlimit-daddr": true, "--hashlimit-rate-match": true, "--contiguous": true, "--kerneltz": true, "--utc": true, "--localtz": true,
}

func (c *meter) option(p *ruleReader, opt string) bool {
	prefix := map[string]string{"time": "--"}[c.m.Module]
	if prefix == "" {
		prefix = "--" + c.m.Module
	}
	if !strings.HasPrefix(opt, prefix) {
		return false
	}
	text := opt
	if p.optNot {
		text = "! " + opt
	}
	value := ""
	if !withoutValue[opt] {
		value = p.value(opt)
		text += " " + value
	}
	switch opt {
	case "--connlimit-above", "--hashlimit-above":
		c.m.WithinBudget = p.optNot
	case "--connlimit-upto", "--hashlimit-upto", "--quota":
		c.m.WithinBudget = !p.optNot
	case "--connbytes":
		low, _, _ := strings.Cut(value, ":")
		c.m.WithinBudget = (low == "" || low == "0") != p.optNot
	}
	c.m.Text = strings.TrimSpace(c.m.Text + " " + text)
	return true
}
