package main

import (
	"context"
	"io"
	"math"

	"github.com/spf13/cobra"

	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/flags"
)

// savingsConfig are the flags of the command.
type savingsConfig struct {
	cluster   clusterFlags
	output    *outputFlag
	prices    rollout.Prices
	workloads bool
}

func (c *savingsConfig) validate() error {
	price := func(flag string, value float64) error {
		return flags.Check(value >= 0 && !math.IsInf(value, 0), flag, value, "must be a number that is not negative")
	}
	return wrong(c.output.validate(), price("core-price", c.prices.Core), price("gib-price", c.prices.GiB))
}

const savingsHelp = `Shows what the running pods under SizingPolicies would request less, and more,
with what is recommended, and what that is in a month. Without names: of all
policies.`

// savingsCommand puts prices on what the statuses of SizingPolicies say: what the running pods
// would request less, and more, with what is recommended. It computes no recommendation and
// reads no pod: the recommender has done that.
func savingsCommand() *cobra.Command {
	var c savingsConfig
	cmd := &cobra.Command{
		Use: "savings [flags] [POLICY...]", Short: "show what recommendations would save, and cost", Long: savingsHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	c.cluster, c.output = addClusterFlags(cmd), addOutputFlag(cmd)
	fs := cmd.Flags()
	fs.Float64Var(&c.prices.Core, "core-price", rollout.DefaultPrices.Core, "What a core costs in an hour, in any currency.")
	fs.Float64Var(&c.prices.GiB, "gib-price", rollout.DefaultPrices.GiB, "What a GiB of memory costs in an hour.")
	fs.BoolVar(&c.workloads, "workloads", false, "Also list the workloads that the statuses name: of each policy the 100 of which most would change.")
	return cmd
}

func (c *savingsConfig) run(ctx context.Context, names []string, out io.Writer) error {
	if err := c.validate(); err != nil {
		return err
	}
	cluster, err := c.cluster.Connect()
	if err != nil {
		return err
	}
	policies, err := readPolicies(ctx, cluster.VPA, names)
	if err != nil {
		return err
	}
	return c.output.print(out, c.answer(policies))
}
