// Command kubectl-loadline is the kubectl plugin of Loadline: kubectl loadline COMMAND.
//
// It uses the same packages as the programs in the cluster. The command backtest needs no cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/doctor"
	"loadline.dev/loadline/kubectl-loadline/explain"
	"loadline.dev/loadline/kubectl-loadline/policies"
	"loadline.dev/loadline/kubectl-loadline/sizes"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(cli.Run(ctx, commands(), os.Args[1:], os.Stdout, os.Stderr))
}

func commands() []*cobra.Command {
	version := &cobra.Command{
		Use: "version", Short: "print the version", Args: cli.Args(cobra.NoArgs),
		Run: func(cmd *cobra.Command, _ []string) { cli.PrintVersion(cmd.OutOrStdout()) },
	}
	return slices.Concat([]*cobra.Command{backtestCommand(), version},
		explain.Commands(), sizes.Commands(), doctor.Commands(), policies.Commands())
}

func backtestCommand() *cobra.Command {
	c := backtest.Default()
	cmd := &cobra.Command{
		Use: "backtest [flags] FILE|DIRECTORY|URL...", Short: "replay recorded usage and score recommendations",
		Long: "Replays recorded usage under recipes and scores what they would have\nrecommended. docs/backtest.md explains the columns.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Exit(backtest.Run(cmd.Context(), c, args, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	c.AddFlags(cmd.Flags())
	return cmd
}
