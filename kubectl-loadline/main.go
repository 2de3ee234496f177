// Command kubectl-loadline is the plugin for people: kubectl loadline COMMAND.
//
// It calls the same core as the programs in the cluster. The command backtest,
// in the package of that name, needs no cluster at all.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/pkg/serving"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// commands are those of the plugin, by name.
func commands() []*cobra.Command {
	return []*cobra.Command{
		backtestCommand(),
		createCommand(),
		diffCommand(),
		doctorCommand(),
		explainCommand(),
		exportCommand(),
		historyCommand(),
		migrateCommand(),
		policyCommand(),
		recommendCommand(),
		savingsCommand(),
		statusCommand(),
		versionCommand(),
	}
}

func backtestCommand() *cobra.Command {
	c := backtest.Default()
	cmd := &cobra.Command{
		Use: "backtest [flags] FILE|DIRECTORY|URL...", Short: "replay recorded usage and score recommendations",
		Long: "Replays recorded usage under recipes and scores what they would have\nrecommended. docs/backtest.md says what the columns mean.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return ended(backtest.Run(cmd.Context(), c, args, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	c.AddFlags(cmd.Flags())
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Args: args(cobra.NoArgs),
		Run: func(cmd *cobra.Command, _ []string) { printVersion(cmd.OutOrStdout()) },
	}
}

func printVersion(out io.Writer) {
	_, _ = io.WriteString(out, "kubectl-loadline "+serving.Version()+"\n")
}
