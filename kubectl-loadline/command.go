package main

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
)

// usageError says that the command line is wrong, not the cluster.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

// exitCode is the outcome of a command that has said itself what was wrong.
type exitCode int

// Error is for the interface: nobody prints it.
func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// ended returns the outcome of a command that has said itself what was wrong.
func ended(code int) error {
	if code == flags.OK {
		return nil
	}
	return exitCode(code)
}

// wrong returns a usageError of all problems, nil if there are none.
func wrong(problems ...error) error {
	if err := errors.Join(problems...); err != nil {
		return usageError{err}
	}
	return nil
}

// args returns a check of arguments whose errors are those of the command line.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if err := check(cmd, given); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// run carries out one command and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	var code exitCode
	switch {
	case err == nil:
		return flags.OK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		printable.Fprintf(errOut, "%s: %s\n", cmd.CommandPath(), strings.ReplaceAll(err.Error(), "\n", "; "))
		return flags.Usage
	}
	for line := range strings.Lines(err.Error()) {
		printable.Fprintf(errOut, "%s: %s\n", cmd.CommandPath(), strings.TrimSuffix(line, "\n"))
	}
	return flags.Failed
}

// newRoot returns kubectl loadline with all its commands. No help text is a template: one would
// keep every exported method of every type in the program.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "kubectl-loadline", Short: "for people who size workloads",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl loadline"},
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs, // RunE says what is wrong with them
	}
	version := root.Flags().Bool("version", false, "Print the version and exit.")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			printVersion(cmd.OutOrStdout())
			return nil
		}
		overview(cmd, cmd.ErrOrStderr())
		if len(args) == 0 {
			return exitCode(flags.Usage)
		}
		return usageError{fmt.Errorf("command %q does not exist: must be %s", args[0], strings.Join(names(cmd), ", "))}
	}
	root.SetGlobalNormalizationFunc(flags.New("").GetNormalizeFunc())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	})
	root.SetHelpFunc(help)
	root.AddCommand(commands()...)
	return root
}

// names are those of the commands below one, without what cobra adds of its own.
func names(of *cobra.Command) (all []string) {
	for _, c := range of.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			all = append(all, c.Name())
		}
	}
	slices.Sort(all)
	return all
}

// help prints what a command does, and its flags.
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

// overview lists the commands below one.
func overview(cmd *cobra.Command, out io.Writer) {
	printable.Fprintf(out, "%s: %s\n\nUsage:\n", cmd.CommandPath(), cmd.Short)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	list(w, cmd)
	_ = w.Flush() // errors of the writer are ignored, as with package fmt
	printable.Fprintf(out, "\n%s COMMAND --help tells more.\n", cmd.CommandPath())
}

func list(w io.Writer, of *cobra.Command) {
	for _, name := range names(of) {
		c, _, err := of.Find([]string{name})
		switch {
		case err != nil:
		case c.HasAvailableSubCommands() && name != "completion":
			list(w, c)
		default:
			printable.Fprintf(w, "  %s %s\t%s\n", of.CommandPath(), c.Use, firstSmall(c.Short))
		}
	}
}

// firstSmall writes the sentence of a library as ours are.
func firstSmall(text string) string {
	if text == "" {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}
