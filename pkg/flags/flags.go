// Package flags holds what the command lines of the programs have in common:
// the flag groups Kube, Logging, Election, Serving and Gates, which a binary
// embeds in its Config, and Program, which parses, validates and runs.
//
// Each group has AddFlags, which binds to a given flag set with the group's
// present values as the defaults, and Validate, which returns all problems
// joined. A problem names the flag, the value and what would be right.
//
// The package keeps no state and touches no global flag set, so tests can parse
// in parallel; only Logging.Apply changes the process, by configuring klog. It
// reads no file and exits nowhere: main does.
package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// New returns an empty flag set for the named program. It takes "_" for "-" in
// flag names and reports mistakes as errors instead of ending the process.
func New(name string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	fs.Usage = func() {}
	return fs
}

// Problem describes a flag whose value is wrong; want completes the sentence
// "must be ..." or says what to do.
func Problem(flag string, value any, want string) error {
	return fmt.Errorf("--%s=%v: %s", flag, value, want)
}

// Check returns Problem(flag, value, want) unless ok.
func Check(ok bool, flag string, value any, want string) error {
	if ok {
		return nil
	}
	return Problem(flag, value, want)
}

// List splits a comma list and drops the empty items. Blanks are kept: they are
// part of the item, as in the reference programs.
func List(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Describe describes every flag of fs in two lines: how it is written, and what it
// means. It reads the same on a terminal of any width and in the documentation.
func Describe(fs *pflag.FlagSet) string {
	var text strings.Builder
	fs.VisitAll(func(f *pflag.Flag) {
		kind, meaning := pflag.UnquoteUsage(f)
		text.WriteString("  ")
		if f.Shorthand != "" {
			fmt.Fprintf(&text, "-%s, ", f.Shorthand)
		}
		text.WriteString("--" + f.Name)
		if kind != "" {
			text.WriteString(" " + kind)
		}
		if !zero(f.DefValue) {
			fmt.Fprintf(&text, " (default %s)", f.DefValue)
		}
		fmt.Fprintf(&text, "\n        %s\n", meaning)
	})
	return text.String()
}

// zero reports whether a default is not worth naming.
func zero(value string) bool {
	return value == "" || value == "false" || value == "0" || value == "[]"
}
