package disruption

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Metrics, events and docs/reasons.md are made of the table, so a reason that is not in
// it would be told by nothing.
func TestEachReasonIsExplained(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var declared []Reason
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Reason" {
				name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				require.NoError(t, err)
				require.Equal(t, spec.Names[0].Name, name)
				declared = append(declared, Reason(name))
			}
		}
		return true
	})
	require.NotEmpty(t, declared)
	require.Equal(t, declared, Reasons())
	for _, reason := range Reasons() {
		e := reason.Explain()
		require.NotEmpty(t, e.Means, e.Reason)
		require.NotEmpty(t, e.Advice, e.Reason)
		require.False(t, strings.Contains(e.Means+e.Advice, "|"), "%s: the page is a table", e.Reason)
	}
	require.Zero(t, Reason("Other").Explain())
}
