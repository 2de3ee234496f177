package trace

import (
	"fmt"
	"strings"
)

// Problem is something wrong in a recording.
type Problem struct {
	File    string // or address of a server
	Line    int    // counted from 1; 0 = the file as a whole
	Column  string // name; empty = the line as a whole
	Series  string // workload/container, empty = none was known
	Text    string // what is wrong, and what was expected
	Warning bool   // no failure: the container, if it is about one, is used nevertheless
}

// Error returns the problem in one line.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Column != "" {
		fmt.Fprintf(&b, ": column %s", p.Column)
	}
	if p.Series != "" {
		fmt.Fprintf(&b, ": %s", p.Series)
	}
	b.WriteString(": " + p.Text)
	if p.Warning && p.Series != "" {
		b.WriteString(" (used nevertheless)")
	}
	return b.String()
}
