// Package kube turns Kubernetes API objects into the model of package service.
//
// Cluster collects Services, EndpointSlices and the own Node and converts only
// what changed. Objects that are not fit to be programmed are refused by
// Validate with the field that is wrong; what is left out on purpose (addresses
// of another family, endpoints without address) follows kube-proxy 1.37.
//
// Begin with cluster.go. convert.go, slice.go, options.go and node.go convert one object
// each, and validate.go refuses.
package kube
