package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// refuseRouterAdvertisements keeps a device of ours from getting addresses and
// routes out of the pod network. Without IPv6 there is nothing to refuse.
func refuseRouterAdvertisements(device string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+device+"/accept_ra", []byte("0"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("net.ipv6.conf.%s.accept_ra: %w", device, err)
	}
	return nil
}
