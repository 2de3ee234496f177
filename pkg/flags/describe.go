package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Describe tells of every flag of fs in two lines: how it is written, and what it
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

// zero tells whether a default is not worth naming.
func zero(value string) bool {
	return value == "" || value == "false" || value == "0" || value == "[]"
}
