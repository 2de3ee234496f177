package main

import (
	"github.com/spf13/cobra"

	"loadline.dev/loadline/kubectl-loadline/cli"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Args: cli.Args(cobra.NoArgs),
		Run: func(cmd *cobra.Command, _ []string) { cli.PrintVersion(cmd.OutOrStdout()) },
	}
}
