package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"portolan/agent"
	backend "portolan/backend/iptables"
	"portolan/backend/ipvs"
	"portolan/backend/nftables"
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
iptables-restore, and behind the line "# ip6tables" that of ip6tables-restore;
with --proxy-mode nftables a script for "nft -f", and with ipvs the input of ipset,
iptables-restore, ipvsadm and ip, each behind a comment line. Needs no root and touches nothing; flags stand above the file of --config.
Where no mode is asked for, that is iptables.

With --against it prints what differs from the rules that are there, line by
line: "+" for what the proxy would write, "-" for what it would remove. Where no mode is
asked for, it is that of the rules, as the proxy would choose it.

Exit codes: 0 done, or nothing to do; 1 with --against, there are differences;
2 some input was refused or cannot be read.`,
		Example: `  portolan plan --manifests examples/nodeport --cluster-cidr 10.244.0.0/16 --hostname-override node-1`,
		Args:    takes(0, 0),
	}
	f := planFlags{config: addPlanFlags(cmd)}
	cmd.Flags().StringVar(&f.family, "ip-family", "", "ipv4 or ipv6; empty prints both")
	cmd.Flags().StringVar(&f.against, "against", "", "print the difference to the rules of this host (kernel, needs root) or of a file or the folder of a dump: the output of iptables-save, or in nftables mode of nft list ruleset, as text or JSON")
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runPlan(cmd, f) }
	return cmd
}

// planFlags are the flags of plan.
type planFlags struct {
	config                  *config.Flags
	family, against, output string
}

func runPlan(cmd *cobra.Command, f planFlags) error {
	families, err := parseFamilies(f.family)
	if err != nil {
		return err
	}
	if f.output != "text" && f.output != "json" {
		return fmt.Errorf("flag --output: %q is neither text nor json", f.output)
	}
	c, err := configured(cmd, f.config)
	if err != nil {
		return err
	}
	if len(c.Options.Manifests) == 0 {
		return errNoInput
	}
	if c, err = modeFor(cmd.Context(), c, f.against, cmd.ErrOrStderr()); err != nil {
		return err
	}
	settings, err := nodeSettings(c)
	if err != nil {
		return err
	}
	settings.NodePorts.Localhost = settings.NodePorts.AllowsLocalhost()
	if len(settings.NodeIPs) > 0 && f.against == "" { // of a node that need not be this one
		settings.NodePorts.Local = settings.NodeIPs
	}
	snapshot, refused := loadManifests(cmd.Context(), c, settings, cmd.ErrOrStderr())
	want := wanted{c, snapshot, families}
	if f.against != "" {
		err = want.printAgainst(cmd, f.against, f.output)
	} else {
		err = want.print(cmd, f.output)
	}
	if refused && (err == nil || errors.As(err, new(exitError))) {
		return exitError{code: exitCannotTell}
	}
	return err
}

// wanted is what Services ask of a node, and how the proxy would write it, in which
// families.
type wanted struct {
	config   config.Config
	services *service.Snapshot
	families []service.Family
}

// print prints what would be written into an empty kernel.
func (w wanted) print(cmd *cobra.Command, output string) error {
	p, err := w.plan()
	if err != nil {
		return err
	}
	return p.print(cmd.OutOrStdout(), output)
}

// printAgainst prints the difference to rules that are there.
func (w wanted) printAgainst(cmd *cobra.Command, against, output string) error {
	list, err := w.compare(cmd.Context(), against)
	if against == "kernel" {
		err = rightsNeeded(os.Geteuid(), err)
	}
	if err != nil {
		return err
	}
	return printDifferences(cmd.OutOrStdout(), list, output)
}

var bothFamilies = []service.Family{service.IPv4, service.IPv6}

func parseFamilies(text string) ([]service.Family, error) {
	switch strings.ToLower(text) {
	case "":
		return bothFamilies, nil
	case "ipv4":
		return []service.Family{service.IPv4}, nil
	case "ipv6":
		return []service.Family{service.IPv6}, nil
	}
	return nil, fmt.Errorf("flag --ip-family: %q is neither ipv4 nor ipv6", text)
}

// loadManifests reads the files once; refused tells whether some document was.
func loadManifests(ctx context.Context, c config.Config, s kube.Settings, stderr io.Writer) (snapshot *service.Snapshot, refused bool) {
	snapshot, problems := manifests.New(c.Options.Manifests, kube.NewCluster(s)).Load(ctx)
	for _, p := range problems {
		if p.Warning {
			fmt.Fprintln(stderr, "warning:", p)
			continue
		}
		fmt.Fprintln(stderr, "error:", p)
		refused = true
	}
	for _, line := range complaints(snapshot, complaintsIn(c)) {
		fmt.Fprintln(stderr, "warning:", line)
	}
	return snapshot, refused
}

// plan is what would be written, a part for each family.
type plan []familyPlan

// familyPlan is the plan of one family: its objects, and the text of all of them.
type familyPlan struct {
	family  service.Family
	objects []ownedObject
	text    string
	tables  bool // a script for nft, which names the family in every line
}

// ownedObject is an object and who asks for it.
type ownedObject struct {
	owner  string
	object dataplane.Object
}

// plan works out what would be written into an empty kernel.
func (w wanted) plan() (plan, error) {
	var out plan
	for _, f := range w.families {
		b, text := planBackend(w.config, f)
		sync := dataplane.NewSync(&dataplane.Fake{}) // an empty kernel
		objects, err := renderAll(b, sync, w.services)
		if err != nil {
			return nil, err
		}
		out = append(out, familyPlan{f, objects, text(sync.Plan()), w.config.Mode == config.NFTables})
	}
	return out, nil
}

// planBackend returns what renders, and what prints a plan.
func planBackend(c config.Config, f service.Family) (agent.Backend, func(dataplane.Plan) string) {
	if c.Mode == config.NFTables {
		b := nftables.New(nftables.Options{Family: f, MasqueradeBit: c.MasqueradeBit, LiberalTCP: c.Conntrack.TCPBeLiberal})
		return b, b.PlanText
	}
	if c.Mode == config.IPVS {
		b := ipvs.New(ipvsOptions(c, f))
		return b, b.PlanText
	}
	return backend.New(planOptions(c, f)), backend.PlanText
}

// planOptions are those of a kernel and programs that can do everything.
func planOptions(c config.Config, f service.Family) backend.Options {
	return backend.Options{Family: f, Layout: layoutOf(c), MasqueradeBit: c.MasqueradeBit, RandomFully: true,
		Nfacct: backend.Counters{InvalidDropped: true, LocalhostAccepted: true}}
}

// renderAll tells sync what all Services ask for, in the order of their names,
// and returns the same as a list.
func renderAll(b agent.Backend, sync *dataplane.Sync, s *service.Snapshot) ([]ownedObject, error) {
	var out []ownedObject
	add := func(owner dataplane.Owner, objects []dataplane.Object) {
		sync.Set(owner, objects)
		for _, o := range objects {
			out = append(out, ownedObject{owner.Name, o})
		}
	}
	add(dataplane.Owner{}, b.Base(s.Node))
	var errs []error
	for _, svc := range slices.SortedFunc(s.All(), func(a, b *service.Service) int { return a.Name.Compare(b.Name) }) {
		objects, err := b.Render(s.Node, svc)
		if err != nil {
			errs = append(errs, fmt.Errorf("render Service %s: %w", svc.Name, err))
			continue
		}
		add(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, objects)
	}
	return out, errors.Join(errs...)
}

// print prints what the programs take, family by family.
func (p plan) print(w io.Writer, output string) error {
	if output == "json" {
		return p.printJSON(w)
	}
	for _, f := range p {
		if f.family == service.IPv6 && len(p) > 1 && !f.tables {
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

// jsonObject is an object with its owner.
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
	return printJSON(w, struct {
		APIVersion string       `json:"apiVersion"`
		Objects    []jsonObject `json:"objects"`
	}{"portolan.io/v1", list})
}
