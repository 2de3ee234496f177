// Package document puts figures into pages that people write: what a program measured goes
// between two lines that are comments, and all else stays as it is.
package document

import (
	"fmt"
	"os"
	"strings"
)

// Fill replaces what is between the lines "<!-- what -->" and "<!-- end of what -->" of the page at path. The figures
// end with a newline. It fails without changing the page if one of the two lines is missing.
func Fill(path, what, figures string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+what+" -->\n", "<!-- end of "+what+" -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s: must have the lines %q and %q, between which the figures go", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(path, []byte(before+begin+figures+end+after), 0o644)
}
