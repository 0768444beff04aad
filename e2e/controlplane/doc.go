// Package controlplane runs a real etcd and a real kube-apiserver for tests and
// measurements: on loopback, or on a host of a lab, so that nodes of the lab reach
// it as they would in a cluster. There is no scheduler, controller or kubelet:
// whoever uses it writes Services, EndpointSlices and Nodes itself.
//
//	programs, err := controlplane.Build(ctx, os.Stderr, "etcd", "kube-apiserver")
//	s, err := controlplane.Start(ctx, controlplane.Options{Programs: programs})
//	defer s.Close()
//	err = s.Call(ctx, "POST", "/api/v1/namespaces/default/services", service, nil)
//	err = s.APIServer.Kill()       // an outage
//	err = s.APIServer.Start(ctx)   // and its end: same port, certificate and data
//
// The programs are built from Go modules, see Build. The module that names them is
// bench/peer; it is no part of the product.
package controlplane
