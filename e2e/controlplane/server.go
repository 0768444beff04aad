package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"portolan/lab"
)

// Options say where a control plane runs and who may use it.
type Options struct {
	Programs string // folder with etcd and kube-apiserver, see Build
	// Host is where it runs: a node of a lab, without pods, whose addresses are of the
	// families of the other nodes. nil means this process's network namespace, on
	// loopback.
	Host  *lab.Host
	Users []User // beside the administrator
	// Services are the networks that ClusterIPs are from, at most one a family, the
	// first of the family of the API server's address; none means lab.ServiceNetworks.
	Services []netip.Prefix
	Args     []string // further arguments of kube-apiserver
	// Data, unless empty, is a folder that Server.Save made: what is in it is there
	// from the start.
	Data string
}

// User is somebody who proves with a token who he is. What he may do, RBAC objects
// say; nobody but the administrator may do anything before they are there.
type User struct {
	Name   string
	Token  string
	Groups []string
}

// Server is a running control plane.
type Server struct {
	APIServer *Process
	Etcd      *Process

	dir     string
	host    *lab.Host
	address netip.AddrPort // of the API server
	etcd    [2]uint16      // ports for clients and for peers
	admin   string         // token
	ca      []byte
}

// patience is how long a program may take to serve, on a machine that does other
// things too.
const patience = 2 * time.Minute

// Start starts etcd and kube-apiserver and waits until /readyz says yes, which takes a
// few seconds. The caller closes the server.
func Start(ctx context.Context, o Options) (*Server, error) {
	dir, err := os.MkdirTemp("", "portolan-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("controlplane: working folder: %w", err)
	}
	s := &Server{dir: dir, host: o.Host, admin: rand.Text()}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start prepares the files, and runs etcd and the API server until they answer.
func (s *Server) start(ctx context.Context, o Options) error {
	if err := s.chooseAddresses(); err != nil {
		return err
	}
	if err := s.writeKey(); err != nil {
		return err
	}
	if err := s.writeTokens(o.Users); err != nil {
		return err
	}
	if o.Data != "" {
		if err := os.CopyFS(s.file("etcd"), os.DirFS(o.Data)); err != nil {
			return fmt.Errorf("controlplane: kept data: %w", err)
		}
	}
	s.Etcd = &Process{name: "etcd", host: s.host, program: filepath.Join(o.Programs, "etcd"),
		args: s.etcdArgs(), log: s.file("etcd.log"), ready: s.etcdReady}
	s.APIServer = &Process{name: "kube-apiserver", host: s.host, program: filepath.Join(o.Programs, "kube-apiserver"),
		args: append(s.apiServerArgs(o.Services), o.Args...), log: s.file("kube-apiserver.log"), ready: s.apiServerReady}
	if err := s.Etcd.Start(ctx); err != nil {
		return err
	}
	return s.APIServer.Start(ctx)
}

// Close ends both programs at once and removes their data.
func (s *Server) Close() error {
	var errs []error
	for _, p := range []*Process{s.APIServer, s.Etcd} {
		if p != nil {
			errs = append(errs, p.Kill())
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		errs = append(errs, fmt.Errorf("controlplane: remove the working folder: %w", err))
	}
	return errors.Join(errs...)
}

// Save copies all objects into a folder that is not there yet, from which later
// servers start, see Options.Data. Both programs are down meanwhile.
func (s *Server) Save(ctx context.Context, dir string) error {
	for _, p := range []*Process{s.APIServer, s.Etcd} {
		if err := p.Stop(ctx); err != nil {
			return err
		}
	}
	unfinished := dir + ".unfinished"
	err := os.RemoveAll(unfinished)
	if err == nil {
		err = os.CopyFS(unfinished, os.DirFS(s.file("etcd")))
	}
	if err == nil {
		err = os.Rename(unfinished, dir)
	}
	if err != nil {
		return fmt.Errorf("controlplane: keep the data: %w", err)
	}
	if err := s.Etcd.Start(ctx); err != nil {
		return err
	}
	return s.APIServer.Start(ctx)
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

// chooseAddresses picks ports that are free now and kept for later runs.
func (s *Server) chooseAddresses() error {
	local := netip.MustParseAddr("127.0.0.1")
	addr := local
	if s.host != nil {
		addr = s.host.Addr(local)
	}
	if !addr.IsValid() {
		return fmt.Errorf("controlplane: host %s has no IPv4 address", s.host.Name)
	}
	var ports [3]uint16
	choose := func() error {
		for i, at := range []netip.Addr{addr, local, local} {
			l, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
			if err != nil {
				return fmt.Errorf("controlplane: a free port: %w", err)
			}
			defer l.Close()
			ports[i] = l.Addr().(*net.TCPAddr).AddrPort().Port()
		}
		return nil
	}
	var err error
	if s.host != nil {
		err = s.host.Do(choose)
	} else {
		err = choose()
	}
	s.address = netip.AddrPortFrom(addr, ports[0])
	s.etcd = [2]uint16{ports[1], ports[2]}
	return err
}

// writeKey makes the key that signs ServiceAccount tokens, without which the API
// server does not start.
func (s *Server) writeKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("controlplane: signing key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("controlplane: signing key: %w", err)
	}
	return s.write("serviceaccount.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func (s *Server) writeTokens(users []User) error {
	var text strings.Builder
	for i, u := range append([]User{{"admin", s.admin, []string{"system:masters"}}}, users...) {
		fmt.Fprintf(&text, "%s,%s,%d,%q\n", u.Token, u.Name, 1000+i, strings.Join(u.Groups, ","))
	}
	return s.write("tokens.csv", []byte(text.String()))
}

func (s *Server) write(name string, text []byte) error {
	if err := os.WriteFile(s.file(name), text, 0o600); err != nil {
		return fmt.Errorf("controlplane: %w", err)
	}
	return nil
}

func (s *Server) etcdArgs() []string {
	clients, peers := s.etcdURL(), fmt.Sprintf("http://127.0.0.1:%d", s.etcd[1])
	return []string{
		"--name=one", "--data-dir=" + s.file("etcd"), "--log-level=warn",
		"--unsafe-no-fsync", // data need not survive this machine
		"--quota-backend-bytes=4294967296",
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=one=" + peers,
	}
}

// apiServerArgs are those of an API server with nothing behind it but etcd.
func (s *Server) apiServerArgs(services []netip.Prefix) []string {
	if len(services) == 0 {
		services = lab.ServiceNetworks
	}
	var networks []string
	for _, p := range services {
		networks = append(networks, p.String())
	}
	key := s.file("serviceaccount.key")
	return []string{
		"--etcd-servers=" + s.etcdURL(), "--cert-dir=" + s.file("certificates"),
		"--bind-address=" + s.address.Addr().String(), "--advertise-address=" + s.address.Addr().String(),
		fmt.Sprintf("--secure-port=%d", s.address.Port()),
		"--endpoint-reconciler-type=none", // else it refuses a loopback address
		"--service-cluster-ip-range=" + strings.Join(networks, ","),
		"--token-auth-file=" + s.file("tokens.csv"), "--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount", // nobody makes the default ones
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--max-requests-inflight=1000", "--max-mutating-requests-inflight=1000",
	}
}
