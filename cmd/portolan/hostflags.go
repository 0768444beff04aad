package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/netfilter/live"
)

// hostFlags say which host is looked at: this one, or that of a dump.
type hostFlags struct {
	rules       []string
	host, table string
	rulesFlag   string // the flag that rules are from, where that is not --rules
}

func (f *hostFlags) add(set *pflag.FlagSet) {
	set.StringArrayVar(&f.rules, "rules", nil, "`FILE` or folder to read instead of the live kernel (repeatable)")
	set.StringVar(&f.host, "host", "", "`FILE` that describes the host: interfaces, routes, sysctls")
	set.StringVar(&f.table, "table", "", "table that an iptables -S or -L text is of")
}

// read reads the dump, or the live kernel.
func (f *hostFlags) read(ctx context.Context) (*netfilter.Host, error) {
	if f.table != "" && netfilter.TableHooks(f.table) == nil {
		return nil, fmt.Errorf("flag --table: %s is none of %s", f.table, strings.Join(netfilter.TableNames, ", "))
	}
	if len(f.rules) == 0 {
		if f.host != "" {
			return nil, errors.New("flag --host describes the host of --rules; without --rules the live kernel is read")
		}
		host, err := live.Read(ctx, live.Options{})
		return host, rightsNeeded(os.Geteuid(), err)
	}
	from := cmp.Or(f.rulesFlag, "--rules")
	texts, err := detect.Read(f.rules...)
	if err != nil {
		return nil, fmt.Errorf("flag %s: %w", from, err)
	}
	if f.host != "" {
		described, err := detect.Read(f.host)
		if err != nil {
			return nil, fmt.Errorf("flag --host: %w", err)
		}
		for _, d := range described {
			if k := detect.KindOf(d.Text); k != detect.HostFile {
				return nil, fmt.Errorf("flag --host: %s is %s, not a description of a host", d.Name, k)
			}
		}
		texts = append(texts, described...)
	}
	host, err := detect.Host(detect.Options{Table: f.table}, texts...)
	if err != nil {
		return nil, fmt.Errorf("flags %s and --host: %w", from, err)
	}
	return host, nil
}

// rightsNeeded says what is most likely missing where the rules of this host could not be
// read; a program that has the capabilities without being root reads them.
func rightsNeeded(user int, err error) error {
	if err == nil || user == 0 {
		return err
	}
	return fmt.Errorf("to read the rules of this host needs root, and this is user %d: %w", user, err)
}
