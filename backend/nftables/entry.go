package nftables

import (
	"iter"
	"strings"

	"portolan/kernel/nft"
)

// frontends is the container of all that is about one frontend: an address with
// its port, or a NodePort. It is one object, so that of two Services that ask for
// one address the older has all of it; it stands for elements of several sets.
// Its body is, after the key, in this order and separated by "; ":
//
//	goto CHAIN        service-ips, nodeports: how new connections are balanced
//	reject, drop      no-endpoints, no-endpoint-nodeports: what is left is refused
//	eps-N ENDPOINTS   eps-N, np-eps-N: "endpoint, endpoint", by slot from 0 on, and
//	                  behind " | " those from localSlots on
//	from RANGES       limited, sources: "network, network"
//	scope NAME        affinity-ids, affinity-nodeport-ids
//
// What was read may have more: a verdict that is not ours in brackets, "else" with
// one that is in the place of reject, several maps of endpoints, "from nobody",
// and "unlimited RANGES".
const frontends = "frontends"

// atom is what one object asks for in one set: elements, as elementsOf reads them.
type atom struct{ set, data string }

// isNodePort tells the two kinds of frontend apart by their key.
func isNodePort(key string) bool { return strings.Count(key, " . ") == 1 }

// dispatchSet, refusalSet and scopeSet are the sets that hold a kind of frontend.

func dispatchSet(nodePort bool) string {
	if nodePort {
		return nodePorts
	}
	return serviceIPs
}

func refusalSet(nodePort bool) string {
	if nodePort {
		return noEndpointNodePorts
	}
	return noEndpoints
}

func scopeSet(nodePort bool) string {
	if nodePort {
		return affinityPortIDs
	}
	return affinityIDs
}

// dataOf is what comes after the name in a body.
func dataOf(name, body string) string {
	return strings.TrimPrefix(strings.TrimPrefix(body, name), " : ")
}

// atoms takes an object of the container apart.
func atoms(container, name, body string) iter.Seq[atom] {
	return func(yield func(atom) bool) {
		data := dataOf(name, body)
		if container != frontends {
			_, set, _ := strings.Cut(container, "/")
			yield(atom{set, data})
			return
		}
		nodePort := isNodePort(name)
		for piece := range strings.SplitSeq(data, "; ") {
			word, rest, _ := strings.Cut(piece, " ")
			on := true
			switch {
			case word == "goto" || strings.HasPrefix(word, "("):
				on = yield(atom{dispatchSet(nodePort), piece})
			case word == "reject":
				on = yield(atom{refusalSet(nodePort), "goto " + refuse})
			case word == "drop":
				on = yield(atom{refusalSet(nodePort), "goto " + discard})
			case word == "else":
				on = yield(atom{refusalSet(nodePort), rest})
			case word == "from" && rest == "nobody":
				on = yield(atom{limited, ""})
			case word == "from":
				on = yield(atom{limited, ""}) && yield(atom{sources, rest})
			case word == "unlimited":
				on = yield(atom{sources, rest})
			case word == "scope":
				on = yield(atom{scopeSet(nodePort), rest})
			default:
				on = yield(atom{word, rest})
			}
			if !on {
				return
			}
		}
	}
}

// entry is what was read about one frontend.
type entry struct {
	dispatch, refusal, ranges, scope string
	slots                            []atom
	limited                          bool
}

func (e *entry) empty() bool {
	return e.dispatch+e.refusal+e.ranges+e.scope == "" && len(e.slots) == 0 && !e.limited
}

// set notes what an element, or the elements of a group, say.
func (e *entry) set(set string, s *shape, data string) {
	switch {
	case s.isSlots():
		e.slots = append(e.slots, atom{set, data})
	case set == serviceIPs || set == nodePorts:
		e.dispatch = data
	case set == noEndpoints || set == noEndpointNodePorts:
		e.refusal = data
	case set == limited:
		e.limited = true
	case set == sources:
		e.ranges = data
	case s.holds == aScope:
		e.scope = data
	}
}

// object returns the name and body of an entry, in one piece of memory.
func (e *entry) object(name string) (string, string) {
	out := append(make([]byte, 0, 128), name...)
	sep := " : "
	add := func(words ...string) {
		out = append(out, sep...)
		for _, w := range words {
			out = append(out, w...)
		}
		sep = "; "
	}
	if e.dispatch != "" {
		add(e.dispatch)
	}
	switch e.refusal {
	case "":
	case "goto " + refuse:
		add("reject")
	case "goto " + discard:
		add("drop")
	default:
		add("else ", e.refusal)
	}
	for _, a := range e.slots {
		add(a.set, " ", a.data)
	}
	switch {
	case e.limited && e.ranges == "":
		add("from nobody")
	case e.limited:
		add("from ", e.ranges)
	case e.ranges != "":
		add("unlimited ", e.ranges)
	}
	if e.scope != "" {
		add("scope ", e.scope)
	}
	body := string(out)
	return body[:len(name)], body
}

// verdictText is a verdict as bodies hold it; in brackets is what Render never writes, so
// that it always differs.
func verdictText(v *nft.Verdict) string {
	switch {
	case v == nil:
		return "(none)"
	case v.Code == nft.Goto:
		return "goto " + v.Chain
	case v.Code == nft.Drop:
		return "drop"
	case v.Code == nft.Accept:
		return "(accept)"
	case v.Code == nft.Jump:
		return "(jump " + v.Chain + ")"
	}
	return "(return)"
}
