package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/client"
)

const policyHelp = `Usage: %s [flags] NAME

Takes a SizingPolicy off its workloads: pauses it, removes from their pods the
annotations of changes that are under observation, which nobody takes back then,
and removes their SizingRecords. Sizes of pods stay. VPAs that were made for the
policy stay, too: they are of mode Off and change no pod.

The updater may be at work meanwhile: run it again after a minute, until nothing
is left to remove.

%s`

// runPolicy carries out a command about SizingPolicies and returns the exit code. The only
// one is detach, the way out before a downgrade or uninstall.
func runPolicy(ctx context.Context, args []string, out, errOut io.Writer) int {
	if len(args) == 0 || args[0] != "detach" {
		fmt.Fprintln(errOut, "kubectl loadline policy: want the command detach (see kubectl loadline policy detach --help)")
		return flags.Usage
	}
	const name = "kubectl loadline policy detach"
	var where clusterFlags
	dryRun, fs := false, flags.New(name)
	where.AddFlags(fs)
	fs.BoolVar(&dryRun, "dry-run", false, "Only say what would be done.")
	if err := fs.Parse(args[1:]); errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(out, policyHelp, name, flags.Describe(fs))
		return flags.OK
	} else if err != nil {
		fmt.Fprintf(errOut, "%s: %v (see %s --help)\n", name, err, name)
		return flags.Usage
	}
	if fs.NArg() != 1 {
		fmt.Fprintf(errOut, "%s: want the name of one SizingPolicy\n", name)
		return flags.Usage
	}
	var clients *client.Clients
	clients, _, err := where.Connect("")
	if err == nil {
		err = detach(ctx, clients, detachOrder{Policy: fs.Arg(0), DryRun: dryRun}, out)
	}
	if err != nil {
		fmt.Fprintf(errOut, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "\n"+name+": "))
		return flags.Failed
	}
	return flags.OK
}
