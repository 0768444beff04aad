// Package judge holds tests in which the kernel judges the reading half and the
// writing half: generated Services and foreign rules are programmed into a node
// of a lab, generated packets are sent for real, and what trace says of each must
// be what the kernel did, rule by rule.
package judge
