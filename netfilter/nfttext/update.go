package nfttext

import "portolan/netfilter"

// update reads "update @set { key timeout 5s : data }".
func (r *rule) update(t token) bool {
	if !r.next().is("@") {
		return false
	}
	u := netfilter.Update{Delete: t.text == "delete", Set: r.table.setOf(r.next().text)}
	if !r.next().is("{") {
		return false
	}
	var ok bool
	if u.Key, ok = r.concat(); !ok {
		return false
	}
	limited, ok := r.updateOptions()
	if !ok {
		return false
	}
	if r.peek().is(":") {
		r.next()
		if u.Data, ok = r.updateData(u.Set); !ok {
			return false
		}
	}
	if !r.next().is("}") {
		return false
	}
	u.Text = r.since(t)
	r.add(u)
	if limited != nil {
		r.add(*limited)
	}
	return true
}

func (r *rule) updateData(s *netfilter.NFTSet) (netfilter.Expr, bool) {
	if len(s.Data) > 1 {
		// Constants and fields may be mixed.
		c := netfilter.Concat{}
		for i, p := range s.Data {
			e, ok := r.or(p)
			if !ok || (i+1 < len(s.Data) && !r.next().is(".")) {
				return nil, false
			}
			c.Parts = append(c.Parts, e)
		}
		return c, true
	}
	return r.wanted(s.Data)
}

// updateOptions reads what stands behind the key; what may end the rule is
// given back.
func (r *rule) updateOptions() (limited *netfilter.Metered, ok bool) {
	for {
		t := r.peek()
		if t.kind != word {
			return limited, true
		}
		switch t.text {
		case "timeout", "expires", "comment":
			r.next()
			r.next()
		case "counter":
			r.next()
			if r.words("packets") {
				r.next()
				r.next()
				r.next()
			}
		case "limit", "quota", "ct":
			n := len(r.Statements)
			if !r.statement() || len(r.Statements) != n+1 {
				return nil, false
			}
			m, is := r.Statements[n].(netfilter.Metered)
			if !is {
				return nil, false
			}
			r.Statements = r.Statements[:n]
			limited = &m
		default:
			return nil, false
		}
	}
}
