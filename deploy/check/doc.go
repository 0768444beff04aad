// Package check holds the tests of deploy/: that the chart and the kustomize base ask
// for the same objects, that a real API server takes them, and that what the
// monitoring names exists. It is a module of its own, so that helm, kustomize and
// Prometheus stay out of the product.
package check
