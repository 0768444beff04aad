package conntrack

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// written is the part of an entry that the writer knows, as a dump has it.
func written(f Flow) []byte {
	w := writer{}
	message := w.message(ctNew, 0, 1, f.Orig.Dst.Addr().Is6())
	for typ, t := range map[uint16]Tuple{ctaTupleOrig: f.Orig, ctaTupleReply: f.Reply} {
		w.tuple(typ, tuple{src: t.Src.Addr(), dst: t.Dst.Addr(), proto: f.Proto, srcPort: t.Src.Port(), dstPort: t.Dst.Port()})
	}
	w.U32(ctaStatus, uint32(f.Status))
	w.U32(ctaID, f.ID)
	w.U16(ctaZone, f.Zone)
	info := w.Nest(ctaProtoInfo)
	inner := w.Nest(ctaProtoInfoTCP)
	w.U8(ctaInfoState, f.State)
	w.Close(inner)
	w.Close(info)
	w.End(message)
	return w.Buf
}

// entry is a message as it is received.
func entry(b []byte) (m netlink.Message) {
	for m = range netlink.Messages(b) {
	}
	return m
}

func sample(addrs ...string) Flow {
	p := netip.MustParseAddrPort
	return Flow{Proto: TCP, State: TCPEstablished, Zone: 3, ID: 7, Status: SeenReply | Assured,
		Orig: Tuple{p(addrs[0]), p(addrs[1])}, Reply: Tuple{p(addrs[2]), p(addrs[0])}}
}

// FuzzMessages: whatever the kernel sends is read without panic, and an entry that
// is taken for one is read the same after it was written.
func FuzzMessages(f *testing.F) {
	f.Add(written(sample("192.0.2.7:1000", "10.96.0.10:80", "10.244.1.5:8080")))
	f.Add(written(sample("[2001:db8::7]:1000", "[fd00:96::a]:80", "[fd00:244::5]:8080")))
	f.Add([]byte{20, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		for m := range netlink.Messages(data) {
			_ = m.Errno()
			flow, ok := parseFlow(m)
			if !ok {
				continue
			}
			again, ok := parseFlow(entry(written(flow)))
			if !ok || again != flow {
				t.Errorf("read %+v, then %+v", flow, again)
			}
		}
	})
}

// TestParseFlow: entries of both families, and what is none.
func TestParseFlow(t *testing.T) {
	for _, f := range []Flow{
		sample("192.0.2.7:1000", "10.96.0.10:80", "10.244.1.5:8080"),
		sample("[2001:db8::7]:1000", "[fd00:96::a]:80", "[fd00:244::5]:8080"),
	} {
		whole := entry(written(f))
		if got, ok := parseFlow(whole); !ok || got != f {
			t.Errorf("read %+v (%v), want %+v", got, ok, f)
		}
		icmp := f
		icmp.Proto = unix.IPPROTO_ICMP
		if got, ok := parseFlow(entry(written(icmp))); ok {
			t.Errorf("an entry without ports was read as %v", got)
		}
		for n := range len(whole.Body) - 1 { // cut short: less is known, nothing is invented
			if got, ok := parseFlow(netlink.Message{Type: ctNew, Body: whole.Body[:n]}); ok && (got.Orig != f.Orig || got.Reply != f.Reply) {
				t.Errorf("cut after %d bytes: %+v", n, got)
			}
		}
	}
}

// TestWalks: filters that are one to the kernel take one walk of its table.
func TestWalks(t *testing.T) {
	addr := netip.MustParseAddr
	v4 := []Filter{{Proto: UDP, From: addr("10.244.0.1"), FromPort: 53}, {Proto: UDP, From: addr("10.244.0.2"), FromPort: 53}, {Proto: TCP, Unreplied: true}}
	v6 := []Filter{{IPv6: true, Proto: UDP, From: addr("fd00:244::1"), FromPort: 53}, {IPv6: true, Proto: UDP, To: addr("fd00:96::a"), FromPort: 53}, {IPv6: true, Proto: TCP}}
	for _, c := range []struct {
		name    string
		blind   bool
		filters []Filter
		want    int
	}{
		{"IPv4", false, v4, 3}, {"IPv6, where addresses are not asked for", false, v6, 2},
		{"a kernel without filters", true, v4, 1}, {"none", false, nil, 0},
	} {
		table, wanted := Table{blind: c.blind}, 0
		walks := table.walks(c.filters)
		for _, w := range walks {
			wanted += len(w.wanted)
		}
		if len(walks) != c.want || wanted != len(c.filters) {
			t.Errorf("%s: %+v", c.name, walks)
		}
	}
	table := &Table{}
	old := sample("192.0.2.7:1000", "10.96.0.10:80", "10.244.1.5:8080")
	if table.selects(walk{asked: v4[0], wanted: v4[:1]}, old) || !table.blind {
		t.Error("a flow that was not asked for was taken, or nothing was learned from it")
	}
}
