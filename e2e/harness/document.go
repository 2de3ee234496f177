package harness

import (
	"fmt"
	"os"
	"strings"
)

// IntoDocument puts figures into a document, between two lines that are comments and name
// what they are.
func IntoDocument(path, what, figures string) error {
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
