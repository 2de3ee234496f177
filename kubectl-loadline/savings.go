package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/flags"
)

// savingsConfig are the flags of the command.
type savingsConfig struct {
	cluster   clusterFlags
	prices    rollout.Prices
	workloads bool
}

func (c *savingsConfig) addFlags(fs *pflag.FlagSet) {
	c.cluster.AddFlags(fs)
	fs.Float64Var(&c.prices.Core, "core-price", rollout.DefaultPrices.Core, "What a core costs in an hour, in any currency.")
	fs.Float64Var(&c.prices.GiB, "gib-price", rollout.DefaultPrices.GiB, "What a GiB of memory costs in an hour.")
	fs.BoolVar(&c.workloads, "workloads", false, "Also list the workloads that the statuses name: of each policy the 100 of which most would change.")
}

func (c *savingsConfig) validate() error {
	price := func(flag string, value float64) error {
		return flags.Check(value >= 0 && !math.IsInf(value, 0), flag, value, "must be a number that is not negative")
	}
	return errors.Join(price("core-price", c.prices.Core), price("gib-price", c.prices.GiB))
}

const savingsHelp = `Usage: %s [flags] [POLICY...]

Shows what the running pods under SizingPolicies would request less, and more,
with what is recommended, and what that is in a month. Without names: of all
policies.

%s`

// runSavings puts prices on what the statuses of SizingPolicies say: what the running pods
// would request less, and more, with what is recommended. It computes no recommendation and
// reads no pod: the recommender has done that. It returns the exit code.
func runSavings(ctx context.Context, args []string, out, errOut io.Writer) int {
	const name = "kubectl loadline savings"
	var c savingsConfig
	fs := flags.New(name)
	c.addFlags(fs)
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(out, savingsHelp, name, flags.Describe(fs))
		return flags.OK
	} else if err != nil {
		fmt.Fprintf(errOut, "%s: %v (see %s --help)\n", name, err, name)
		return flags.Usage
	}
	if err := c.validate(); err != nil {
		fmt.Fprintf(errOut, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
		return flags.Usage
	}
	clients, _, err := c.cluster.Connect("")
	if err == nil {
		policies, failed := readPolicies(ctx, clients.VPA, fs.Args())
		if err = failed; err == nil {
			err = c.show(out, policies)
		}
	}
	if err != nil {
		fmt.Fprintf(errOut, "%s: %v\n", name, err)
		return flags.Failed
	}
	return flags.OK
}
