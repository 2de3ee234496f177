// Command reasons writes the table of docs/reasons.md from the one in the code.
package main

import (
	"fmt"
	"os"
	"strings"

	"loadline.dev/loadline/pkg/core/disruption"
)

// The table stands between these lines of the page.
const (
	begin = "<!-- made by hack/generate.sh from pkg/core/disruption/reason.go -->\n"
	end   = "<!-- end -->\n"
)

func main() {
	if err := run("docs/reasons.md"); err != nil {
		fmt.Fprintln(os.Stderr, "reasons:", err)
		os.Exit(1)
	}
}

func run(page string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(old), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no lines %q and %q", page, begin, end)
	}
	if text := head + begin + table() + end + tail; text != string(old) {
		return os.WriteFile(page, []byte(text), 0o644)
	}
	return nil
}

func table() string {
	var b strings.Builder
	b.WriteString("| reason | what it means | what to do |\n|---|---|---|\n")
	for _, reason := range disruption.Reasons() {
		e := reason.Explain()
		fmt.Fprintf(&b, "| %s | %s | %s |\n", reason, e.Means, e.Advice)
	}
	return b.String()
}
