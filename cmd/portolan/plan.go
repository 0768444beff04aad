package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	backend "portolan/backend/iptables"
	"portolan/config"
	"portolan/dataplane"
	"portolan/service"
	"portolan/source/kube"
	"portolan/source/manifests"
)

func newPlanCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print what would be programmed on this node",
		Long: `Prints what the proxy would write into an empty kernel: the input of
iptables-restore, and behind the line "# ip6tables" that of ip6tables-restore.
Needs no root and touches nothing; flags stand above the file of --config.

Exit codes: 0 done, 2 some input was refused or cannot be read.`,
		Example: `  portolan plan --manifests examples/nodeport --cluster-cidr 10.244.0.0/16 --hostname-override node-1`,
		Args:    cobra.NoArgs,
	}
	flags := addNodeFlags(cmd.Flags())
	family := cmd.Flags().String("ip-family", "", "ipv4 or ipv6; empty prints both")
	output := cmd.Flags().StringP("output", "o", "text", "text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		families, err := parseFamilies(*family)
		if err != nil {
			return err
		}
		if *output != "text" && *output != "json" {
			return fmt.Errorf("flag --output: %q is neither text nor json", *output)
		}
		c, warnings, err := flags.config.Config(true)
		if err != nil {
			return err
		}
		for _, w := range warnings {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
		}
		settings, err := flags.settings(c)
		if err != nil {
			return err
		}
		settings.NodePorts.Localhost = settings.NodePorts.AllowsLocalhost()
		snapshot, refused := loadManifests(cmd.Context(), flags.manifests, settings, cmd.ErrOrStderr())
		plan, err := makePlan(c, snapshot, families)
		if err != nil {
			return err
		}
		if err := plan.print(cmd.OutOrStdout(), *output); err != nil {
			return err
		}
		if refused {
			return exitError{code: exitCannotTell}
		}
		return nil
	}
	return cmd
}

func parseFamilies(text string) ([]service.Family, error) {
	switch strings.ToLower(text) {
	case "":
		return []service.Family{service.IPv4, service.IPv6}, nil
	case "ipv4":
		return []service.Family{service.IPv4}, nil
	case "ipv6":
		return []service.Family{service.IPv6}, nil
	}
	return nil, fmt.Errorf("flag --ip-family: %q is neither ipv4 nor ipv6", text)
}

// loadManifests reads the files once; refused tells whether some document was.
func loadManifests(ctx context.Context, paths []string, s kube.Settings, stderr io.Writer) (snapshot *service.Snapshot, refused bool) {
	snapshot, problems := manifests.New(paths, kube.NewCluster(s)).Load(ctx)
	for _, p := range problems {
		if p.Warning {
			fmt.Fprintln(stderr, "warning:", p)
			continue
		}
		fmt.Fprintln(stderr, "error:", p)
		refused = true
	}
	return snapshot, refused
}

// plan is what would be written, a part for each family.
type plan []familyPlan

type familyPlan struct {
	family  service.Family
	objects []ownedObject
	text    string
}

type ownedObject struct {
	owner  string
	object dataplane.Object
}

func makePlan(c config.Config, s *service.Snapshot, families []service.Family) (plan, error) {
	var out plan
	var errs []error
	services := slices.SortedFunc(s.All(), func(a, b *service.Service) int { return a.Name.Compare(b.Name) })
	for _, f := range families {
		b := backend.New(backend.Options{Family: f, MasqueradeBit: c.MasqueradeBit, RandomFully: true,
			Nfacct: backend.Counters{InvalidDropped: true, LocalhostAccepted: true}})
		sync := dataplane.NewSync(&dataplane.Fake{}) // an empty kernel
		p := familyPlan{family: f}
		add := func(owner dataplane.Owner, objects []dataplane.Object) {
			sync.Set(owner, objects)
			for _, o := range objects {
				p.objects = append(p.objects, ownedObject{owner.Name, o})
			}
		}
		add(dataplane.Owner{}, b.Base(s.Node))
		for _, svc := range services {
			objects, err := b.Render(s.Node, svc)
			if err != nil {
				errs = append(errs, fmt.Errorf("render Service %s: %w", svc.Name, err))
				continue
			}
			add(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, objects)
		}
		p.text = backend.PlanText(sync.Plan())
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}

func (p plan) print(w io.Writer, output string) error {
	if output == "json" {
		return p.printJSON(w)
	}
	for _, f := range p {
		if f.family == service.IPv6 && len(p) > 1 {
			if _, err := fmt.Fprintln(w, "# ip6tables"); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			return err
		}
	}
	return nil
}

type jsonObject struct {
	Family    string `json:"family"`
	Owner     string `json:"owner"` // namespace/name of the Service; empty for what no Service asks for
	Container string `json:"container"`
	Rank      int    `json:"rank"`
	Name      string `json:"name"`
	Body      string `json:"body"`
}

func (p plan) printJSON(w io.Writer) error {
	list := []jsonObject{}
	for _, f := range p {
		for _, o := range f.objects {
			k := o.object.Key
			list = append(list, jsonObject{f.family.String(), o.owner, k.Container, k.Rank, k.Name, o.object.Body})
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		APIVersion string       `json:"apiVersion"`
		Objects    []jsonObject `json:"objects"`
	}{"portolan.io/v1", list})
}
