// Package cli provides the common parts of the plugin's commands: cluster flags, output and errors.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/printable"
	"loadline.dev/loadline/pkg/serving"
)

type usageError struct{ error }

// exitCode is returned by commands that have printed their errors.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Exit returns the error for an exit code of a command that has printed its errors.
func Exit(code int) error {
	if code == flags.ExitOK {
		return nil
	}
	return exitCode(code)
}

// Invalid joins errors of the command line. It returns nil without any.
func Invalid(problems ...error) error {
	if err := errors.Join(problems...); err != nil {
		return usageError{err}
	}
	return nil
}

// Args turns errors of an argument check into errors of the command line.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		return Invalid(check(cmd, given))
	}
}

// Run executes one of the commands and returns the exit code.
func Run(ctx context.Context, commands []*cobra.Command, args []string, out, errOut io.Writer) int {
	root := NewRoot(commands)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	var code exitCode
	switch {
	case err == nil:
		return flags.ExitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		printable.Fprintf(errOut, "%s: %s\n", cmd.CommandPath(), strings.ReplaceAll(err.Error(), "\n", "; "))
		return flags.ExitUsage
	}
	for line := range strings.Lines(err.Error()) {
		printable.Fprintf(errOut, "%s: %s\n", cmd.CommandPath(), strings.TrimSuffix(line, "\n"))
	}
	return flags.ExitFailed
}

// NewRoot returns kubectl loadline with its commands. Help texts use no templates, because
// the linker would keep every exported method of every type.
func NewRoot(commands []*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use: "kubectl-loadline", Short: "for people who size workloads",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl loadline"},
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs, // RunE checks them
	}
	version := root.Flags().Bool("version", false, "Print the version and exit.")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			PrintVersion(cmd.OutOrStdout())
			return nil
		}
		overview(cmd, cmd.ErrOrStderr())
		if len(args) == 0 {
			return exitCode(flags.ExitUsage)
		}
		return usageError{fmt.Errorf("command %q does not exist: must be %s", args[0], strings.Join(commandNames(cmd), ", "))}
	}
	root.SetGlobalNormalizationFunc(flags.New("").GetNormalizeFunc())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	})
	root.SetHelpFunc(help)
	root.AddCommand(commands...)
	return root
}

func commandNames(parent *cobra.Command) (all []string) {
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			all = append(all, c.Name())
		}
	}
	slices.Sort(all)
	return all
}

func help(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	if cmd.HasAvailableSubCommands() {
		overview(cmd, out)
		return
	}
	printable.Fprintf(out, "Usage: %s%s\n\n", strings.TrimSuffix(cmd.CommandPath(), cmd.Name()), cmd.Use)
	if cmd.Long != "" {
		_, _ = io.WriteString(out, cmd.Long+"\n\n")
	}
	own, standard := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Name == "help":
		case f.Annotations[kubectlFlag] != nil:
			standard.AddFlag(f)
		default:
			own.AddFlag(f)
		}
	})
	_, _ = io.WriteString(out, flags.Describe(own))
	if standard.HasFlags() {
		_, _ = io.WriteString(out, "\nThose of kubectl:\n\n"+flags.Describe(standard))
	}
}

func overview(cmd *cobra.Command, out io.Writer) {
	printable.Fprintf(out, "%s: %s\n\nUsage:\n", cmd.CommandPath(), cmd.Short)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	listCommands(w, cmd)
	_ = w.Flush() // package fmt ignores write errors, too
	printable.Fprintf(out, "\nUse %s COMMAND --help for more information.\n", cmd.CommandPath())
}

func listCommands(w io.Writer, parent *cobra.Command) {
	for _, name := range commandNames(parent) {
		c, _, err := parent.Find([]string{name})
		switch {
		case err != nil:
		case c.HasAvailableSubCommands() && name != "completion":
			listCommands(w, c)
		default:
			printable.Fprintf(w, "  %s %s\t%s\n", parent.CommandPath(), c.Use, lowerFirst(c.Short))
		}
	}
}

// lowerFirst adapts descriptions of cobra's own commands.
func lowerFirst(text string) string {
	if text == "" {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}

// PrintVersion prints the version of the plugin.
func PrintVersion(out io.Writer) {
	_, _ = io.WriteString(out, "kubectl-loadline "+serving.Version()+"\n")
}
