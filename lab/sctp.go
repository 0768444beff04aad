package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// HasSCTP tells whether this kernel speaks SCTP.
func HasSCTP() bool {
	fd, err := sctpSocket(netip.IPv4Unspecified())
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// sctpSocket makes a socket for one association at a time, which behaves as one of
// TCP does: package net takes it for one.
func sctpSocket(like netip.Addr) (int, error) {
	family := unix.AF_INET6
	if like.Is4() {
		family = unix.AF_INET
	}
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_SCTP)
}

// An end of SCTP that is bound to one address tells its peer of no other, which
// nobody would translate.

// listenSCTP opens a port of one address.
func listenSCTP(at netip.AddrPort) (net.Listener, error) {
	fd, err := sctpSocket(at.Addr())
	if err != nil {
		return nil, fmt.Errorf("lab: SCTP: %w", err)
	}
	file := os.NewFile(uintptr(fd), "sctp")
	defer file.Close()
	if err = unix.Bind(fd, sockaddr(at)); err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		return nil, fmt.Errorf("lab: SCTP: listen at %v: %w", at, err)
	}
	return net.FileListener(file)
}

// dialSCTP connects, from the address that a datagram would have where none is given.
func dialSCTP(ctx context.Context, from, to netip.AddrPort) (net.Conn, error) {
	if !from.Addr().IsValid() {
		probe, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return nil, err
		}
		from = netip.AddrPortFrom(unmapped(probe.LocalAddr()).Addr(), from.Port())
		probe.Close()
	}
	fd, err := sctpSocket(to.Addr())
	if err != nil {
		return nil, fmt.Errorf("lab: SCTP: %w", err)
	}
	file := os.NewFile(uintptr(fd), "sctp")
	defer file.Close()
	level, option := unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	if to.Addr().Is4() {
		level, option = unix.IPPROTO_IP, unix.IP_RECVERR
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil { // to hear of ICMP errors
		return nil, err
	}
	if err := unix.Bind(fd, sockaddr(from)); err != nil {
		return nil, fmt.Errorf("lab: SCTP: from %v: %w", from, err)
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil && err != unix.EINPROGRESS {
		return nil, err
	}
	if err := connected(ctx, fd); err != nil {
		return nil, err
	}
	return net.FileConn(file)
}

// connected waits until a socket is connected, or cannot be.
func connected(ctx context.Context, fd int) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int((20 * time.Millisecond).Milliseconds()))
		switch {
		case err == unix.EINTR, err == nil && n == 0:
			continue
		case err != nil:
			return err
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}
