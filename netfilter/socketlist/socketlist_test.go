package socketlist

import (
	"fmt"
	"strings"
	"testing"

	"portolan/netfilter"
)

func texts(list []netfilter.Listener) string {
	var out []string
	for _, l := range list {
		addr := "*"
		if l.Addr.IsValid() {
			addr = l.Addr.String()
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", netfilter.ProtoName(l.Proto), addr, l.Port, l.Process)))
	}
	return strings.Join(out, "\n")
}

func TestParse(t *testing.T) {
	const want = "udp 127.0.0.53 53 systemd-resolve\ntcp 0.0.0.0 22 sshd\ntcp * 30080 nginx\ntcp ::1 631"
	for name, text := range map[string]string{
		"ss": `Netid State  Recv-Q Send-Q Local Address:Port  Peer Address:PortProcess
udp   UNCONN 0      0      127.0.0.53%lo:53         0.0.0.0:*    users:(("systemd-resolve",pid=500,fd=13))
tcp   LISTEN 0      128          0.0.0.0:22         0.0.0.0:*    users:(("sshd",pid=700,fd=3))
tcp   LISTEN 0      511                *:30080            *:*    users:(("nginx",pid=800,fd=6),("nginx",pid=801,fd=6))
tcp   ESTAB  0      0           10.0.0.1:22        10.0.0.9:5000 users:(("sshd",pid=900,fd=4))
tcp   LISTEN 0      128            [::1]:631           [::]:*
`,
		"netstat": `Active Internet connections (only servers)
Proto Recv-Q Send-Q Local Address           Foreign Address         State       PID/Program name
udp        0      0 127.0.0.53:53           0.0.0.0:*                           500/systemd-resolve
tcp        0      0 0.0.0.0:22              0.0.0.0:*               LISTEN      700/sshd
tcp6       0      0 :::30080                :::*                    LISTEN      800/nginx
tcp        0      0 10.0.0.1:22             10.0.0.9:5000           ESTABLISHED 900/sshd
tcp6       0      0 ::1:631                 :::*                    LISTEN      -
`,
	} {
		list, err := Parse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := texts(list); got != want {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	if _, err := Parse("f", "tcp LISTEN 0 128 0.0.0.0:ssh 0.0.0.0:*"); err == nil || !strings.Contains(err.Error(), "f:1: port of") {
		t.Error(err)
	}
}

// /proc/net has addresses in hexadecimal, in the byte order of the host.
func TestProc(t *testing.T) {
	const heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	list, err := Proc(netfilter.TCP, heading+"   0: 3500007F:0035 00000000:0000 0A 0\n   1: 0100000A:0016 0900000A:1388 01 0\n   2: 00000000000000000000000000000000:7580 00000000000000000000000000000000:0000 0A 0\n   3: 0000000000000000FFFF00000100007F:0050 0:0 0A 0\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(list); got != "tcp 127.0.0.53 53\ntcp * 30080\ntcp 127.0.0.1 80" {
		t.Error(got)
	}
	if _, err := Proc(netfilter.UDP, "0: XX:0035 0:0 07\n"); err == nil {
		t.Error("no error")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("tcp   LISTEN 0      128            [::1]:631           [::]:*")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Parse("f", text); err != nil && !strings.HasPrefix(err.Error(), "socketlist: f:") {
			t.Fatal(err)
		}
		_, _ = Proc(netfilter.UDP, text) // must not panic
	})
}
