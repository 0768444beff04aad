// Package healthcheck tells others how the proxy fares: /healthz and /livez of
// the proxy itself, and the health-check node ports by which load balancers
// find the nodes that have local endpoints.
//
// health.go and conditions.go are the health of the proxy, and nodeport.go that of the
// Services; serve.go serves both.
package healthcheck
