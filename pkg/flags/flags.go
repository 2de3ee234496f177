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
