// Command reasons generates the tables of docs/reasons.md.
package main

import (
	"fmt"
	"os"
	"strings"

	"loadline.dev/loadline/pkg/core/reason"
)

// Each table is between these lines of the page.
const (
	begin = "<!-- made by hack/generate.sh from pkg/core/reason/explain.go: %s -->\n"
	end   = "<!-- end -->\n"
)

func main() {
	if err := run("docs/reasons.md"); err != nil {
		fmt.Fprintln(os.Stderr, "reasons:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page, err := replace(string(old), "skipped pods", reason.SkippedPod)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if page, err = replace(page, "pods that do not share", reason.NotSharing); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if page != string(old) {
		return os.WriteFile(path, []byte(page), 0o644)
	}
	return nil
}

func replace(page, title string, scope reason.Scope) (string, error) {
	first := fmt.Sprintf(begin, title)
	head, rest, found := strings.Cut(page, first)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("no lines %q and %q", first, end)
	}
	return head + first + table(scope) + end + tail, nil
}

func table(scope reason.Scope) string {
	var b strings.Builder
	b.WriteString("| reason | what it means | what to do |\n|---|---|---|\n")
	for _, e := range reason.All() {
		if e.Scope == scope {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", e.Reason, e.Meaning, e.Advice)
		}
	}
	return b.String()
}
