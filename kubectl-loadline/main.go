// Command kubectl-loadline is the plugin for people: kubectl loadline COMMAND.
//
// It calls the same core as the programs in the cluster. The command backtest,
// in the package of that name, needs no cluster at all.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"loadline.dev/loadline/kubectl-loadline/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(cli.Run(ctx, commands(), os.Args[1:], os.Stdout, os.Stderr))
}
