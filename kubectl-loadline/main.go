// Command kubectl-loadline is the plugin for people: kubectl loadline COMMAND.
//
// It calls the same core as the programs in the cluster. The command backtest,
// in the package of that name, needs no cluster at all.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/serving"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const overview = `kubectl loadline: for people who size workloads

Usage:
  kubectl loadline backtest [flags] FILE|DIRECTORY|URL...   replay recorded usage and score recommendations
  kubectl loadline explain [flags] VPA|pod/NAME             show each step of a recommendation; what becomes of a pod, and what its node's pods share
  kubectl loadline policy detach [flags] NAME               take a SizingPolicy off its pods, before a downgrade or uninstall
  kubectl loadline savings [flags] [POLICY...]              show what recommendations would save, and cost
  kubectl loadline version                                  print the version

kubectl loadline COMMAND --help tells more.
`

// run carries out one command and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "backtest":
		return backtest.Main(ctx, args[1:], out, errOut)
	case "explain":
		return runExplain(ctx, args[1:], out, errOut)
	case "policy":
		return runPolicy(ctx, args[1:], out, errOut)
	case "savings":
		return runSavings(ctx, args[1:], out, errOut)
	case "version", "--version":
		fmt.Fprintln(out, "kubectl-loadline", serving.Version())
		return flags.OK
	case "help", "--help", "-h":
		fmt.Fprint(out, overview)
		return flags.OK
	}
	fmt.Fprint(errOut, overview)
	if command != "" {
		fmt.Fprintf(errOut, "\nkubectl loadline: command %q does not exist: must be backtest, explain, policy, savings or version\n", command)
	}
	return flags.Usage
}
