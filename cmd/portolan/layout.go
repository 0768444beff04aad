package main

import (
	"log/slog"

	backend "portolan/backend/iptables"
	"portolan/config"
	"portolan/kernel/iptables"
	"portolan/service"
)

func layoutOf(c config.Config) backend.Layout {
	if c.Options.IPTables.Layout == config.Compact {
		return backend.Compact
	}
	return backend.Standard
}

// manyServices is from how many Services on the standard layout is slow in the nft
// variant of iptables: 5,000 with 10 endpoints each take 5 s, and a change 0.2 s, two and
// four times as long as in the compact one.
const manyServices = 2000

// newLayoutLog returns a function that says, whenever that begins, that another
// arrangement of rules would be faster.
func newLayoutLog(c config.Config, variant iptables.Variant, log *slog.Logger) func(*service.Snapshot) {
	if c.Mode != config.IPTables || variant != iptables.NFT || layoutOf(c) != backend.Standard {
		return func(*service.Snapshot) {}
	}
	warned := false
	return func(s *service.Snapshot) {
		many := s.Len() > manyServices
		if many && !warned {
			log.Warn("writing rules takes long with so many Services in the nft variant of iptables",
				"services", s.Len(), "use", "--proxy-mode nftables, or --iptables-layout compact")
		}
		warned = many
	}
}
