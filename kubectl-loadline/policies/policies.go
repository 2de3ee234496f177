// Package policies has the commands about SizingPolicies.
package policies

import (
	"errors"

	"github.com/spf13/cobra"

	"loadline.dev/loadline/kubectl-loadline/cli"
)

// policyCommand groups the commands about SizingPolicies. Its only command, detach, precedes a
// downgrade or uninstallation.
func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "take SizingPolicies off their pods", Args: cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return cli.Invalid(errors.New("want the command detach (see kubectl loadline policy detach --help)"))
		},
	}
	cmd.AddCommand(detachCommand())
	return cmd
}

const detachHelp = `Takes a SizingPolicy off its workloads: pauses it, removes from their pods the
annotations of changes that are under observation, which nobody takes back then,
and removes their SizingRecords. Sizes of pods stay. VPAs that were made for the
policy stay, too: they are of mode Off and change no pod.

The updater may be at work meanwhile: run it again after a minute, until nothing
is left to remove.`

func detachCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "detach [flags] NAME", Long: detachHelp, Short: "take a SizingPolicy off its pods, before a downgrade or uninstall"}
	where := cli.AddClusterFlags(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "Only say what would be done.")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return cli.Invalid(errors.New("want the name of one SizingPolicy"))
		}
		if *where.Namespace != "" {
			return cli.Invalid(errors.New("--namespace: a SizingPolicy has no namespace, it is taken off its pods in all namespaces"))
		}
		cluster, err := where.Connect()
		if err != nil {
			return err
		}
		return detach(cmd.Context(), cluster.Clients, detachOptions{Policy: args[0], DryRun: *dryRun}, cmd.OutOrStdout())
	}
	return cmd
}

// Commands returns the commands about SizingPolicies.
func Commands() []*cobra.Command { return []*cobra.Command{policyCommand()} }
