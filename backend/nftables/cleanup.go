package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"portolan/kernel/nft"
)

// Cleanup removes the named tables of one family, such as TableName and
// "kube-proxy", and nothing else. It returns what it removed, or would remove in
// a dry run, in the words "delete table FAMILY NAME". Where nothing is left it
// returns nothing.
func Cleanup(ctx context.Context, conn *nft.Conn, f nft.Family, names []string, dryRun bool) ([]string, error) {
	found, err := Tables(conn, f, names...)
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for _, name := range found {
		t := nft.Table{Family: f, Name: name}
		if !dryRun {
			batch := nft.NewBatch(t)
			batch.DeleteTable(0)
			err := errors.Join(ctx.Err(), conn.Commit(batch))
			if errors.Is(err, unix.ENOENT) {
				continue // somebody else did
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("nftables: cleanup: %w", err))
				continue
			}
		}
		removed = append(removed, "delete table "+t.String())
	}
	return removed, errors.Join(errs...)
}

// Tables tells which of the named tables of this family exist.
func Tables(conn *nft.Conn, f nft.Family, names ...string) ([]string, error) {
	have, err := conn.Tables(f)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(have, func(name string) bool { return !slices.Contains(names, name) }), nil
}
