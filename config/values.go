package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

func (b bothBools) String() string {
	return strconv.FormatBool(b[0] != nil && *b[0])
}

func (b bothBools) Set(text string) error {
	v, err := strconv.ParseBool(text)
	if err == nil {
		*b[0], *b[1] = v, v
	}
	return err
}

func (bothBools) Type() string { return "bool" }

func (d bothDurations) String() string {
	if d[0] == nil {
		return "0s"
	}
	return d[0].String()
}

func (d bothDurations) Set(text string) error {
	v, err := time.ParseDuration(text)
	if err == nil {
		*d[0], *d[1] = v, v
	}
	return err
}

func (bothDurations) Type() string { return "duration" }

// ipValue is a flag with an IP address, or nothing.
type ipValue struct{ field *string }

func (v ipValue) String() string {
	if v.field == nil {
		return ""
	}
	return *v.field
}

func (v ipValue) Set(text string) error {
	if text != "" {
		if _, err := netip.ParseAddr(text); err != nil {
			return fmt.Errorf("%q is not an IP address", text)
		}
	}
	*v.field = text
	return nil
}

func (ipValue) Type() string { return "ip" }

// addressValue is a flag with IP:port, a bare IP, or nothing.
type addressValue struct{ field *string }

func (v addressValue) String() string { return ipValue(v).String() }

func (v addressValue) Set(text string) error {
	_, bare := netip.ParseAddr(text)
	_, full := netip.ParseAddrPort(text)
	if text != "" && bare != nil && full != nil {
		return fmt.Errorf("%q is neither IP:port nor an IP address", text)
	}
	*v.field = text
	return nil
}

func (addressValue) Type() string { return "ipport" }

func hostPort(ip netip.Addr, port int32) string {
	return net.JoinHostPort(ip.String(), strconv.Itoa(int(port)))
}
