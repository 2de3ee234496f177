package sizes

import (
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/flags"
)

// savingsConfig are the flags of savings.
type savingsConfig struct {
	cluster   cli.ClusterFlags
	output    *cli.OutputFlag
	scope     cli.ScopeFlags
	policies  flags.Policies
	prices    rollout.Prices
	workloads bool
}

func (c *savingsConfig) validate() error {
	price := func(flag string, value float64) error {
		return flags.Check(value >= 0 && !math.IsInf(value, 0), flag, value, "must be a number that is not negative")
	}
	return cli.Invalid(c.output.Validate(), c.scope.Validate(), price("core-price", c.prices.Core), price("gib-price", c.prices.GiB))
}

const savingsHelp = `Shows how much less, and more, the running pods of workloads with a VPA would request
with the recommended resources, and the price of that in a month: of each SizingPolicy,
and of each workload without one. Arguments are names of SizingPolicies. Without -n all
namespaces are read.`

// savingsCommand shows the price of the difference between requests and published recommendations.
func savingsCommand() *cobra.Command {
	var c savingsConfig
	cmd := &cobra.Command{
		Use: "savings [flags] [POLICY...]", Short: "show what recommendations would save, and cost", Long: savingsHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.cluster, c.output = cli.AddClusterFlags(cmd), cli.AddOutputFlag(cmd)
	c.scope.AddFlags(cmd, "pods")
	c.policies.AddFlags(cmd.Flags())
	fs := cmd.Flags()
	fs.Float64Var(&c.prices.Core, "core-price", rollout.DefaultPrices.Core, "What a core costs in an hour, in any currency.")
	fs.Float64Var(&c.prices.GiB, "gib-price", rollout.DefaultPrices.GiB, "What a GiB of memory costs in an hour.")
	fs.BoolVar(&c.workloads, "workloads", false, "Also list the workloads of each SizingPolicy.")
	return cmd
}

func (c *savingsConfig) run(cmd *cobra.Command, names []string, out, errOut io.Writer) error {
	if err := c.validate(); err != nil {
		return err
	}
	cluster, err := c.cluster.Connect()
	if err != nil {
		return err
	}
	selector, err := labels.Parse(c.scope.Selector)
	if err != nil {
		return err
	}
	// Without a flag, all namespaces are read, not the namespace of the context.
	q := inventory.Request{Namespace: c.scope.Namespace(*c.cluster.Namespace), Now: time.Now(), Kube: cluster.Kube}
	q.Policies.Foreign = c.policies.Foreign
	a, err := c.answer(cmd.Context(), cluster.VPA, q, savingsScope{selector, names})
	if err != nil {
		return err
	}
	return c.output.Print(out, errOut, a)
}
