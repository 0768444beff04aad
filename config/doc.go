// Package config turns kube-proxy's configuration (KubeProxyConfiguration
// v1alpha1 of kube-proxy 1.37, flags, and our own ProxyOptions) into one
// validated Config.
//
// Begin with config.go: Config is what the program runs with. On the way there bind.go
// and flags.go read flags (values.go has their types), file.go reads the file, and
// fields.go finds what in it nobody knows; defaults.go fills in what both leave out,
// traffic.go and logging.go make fields of Config of it, options.go and layout.go have the
// fields that are ours, and validate.go and gates.go refuse what cannot be. write.go
// writes a configuration back, and watch.go notices that the file changed.
package config
