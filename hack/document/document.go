// Package document inserts measured figures into hand-written pages, between two comment lines, and
// preserves the rest.
package document

import (
	"fmt"
	"os"
	"strings"
)

// Fill replaces the text between the lines "<!-- name -->" and "<!-- end of name -->" of the page
// at path. The figures end with a newline. It returns an error without changing the page if one of
// the lines is missing.
func Fill(path, name, figures string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s: must have the lines %q and %q, between which the figures go", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(path, []byte(before+begin+figures+end+after), 0o644)
}
