package reason

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Metrics, events and docs/reasons.md are generated from the explanations, so each reason needs
// one.
func TestAll_ExplainsEachReason(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	explained := map[Reason]bool{InitialSizingOff: true} // only in the log of the webhook
	seen := map[Explanation]bool{}
	for _, e := range All() {
		key := Explanation{Reason: e.Reason, Scope: e.Scope}
		require.False(t, seen[key], "%s is explained twice", e.Reason)
		seen[key], explained[e.Reason] = true, true
		require.NotEmpty(t, e.Meaning, e.Reason)
		require.NotEmpty(t, e.Advice, e.Reason)
		require.False(t, strings.Contains(e.Meaning+e.Advice, "|"), "%s: the page is a table", e.Reason)
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Reason" {
				name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				require.NoError(t, err)
				require.Equal(t, spec.Names[0].Name, name)
				require.True(t, explained[Reason(name)], "%s has no explanation", name)
				declared++
			}
		}
		return true
	})
	require.Len(t, explained, declared)
}

func TestExplain_PrefersSkippedPods(t *testing.T) {
	require.Equal(t, SkippedPod, ManagedByHPA.Explain().Scope)
	require.Equal(t, NotSharing, GPUNode.Explain().Scope)
	require.Zero(t, Reason("Other").Explain())
}

// The docs list reasons in the order of declaration.
func TestSkipReasons_KeepsOrder(t *testing.T) {
	skips := SkipReasons()
	require.Equal(t, NoVPA, skips[0])
	require.Equal(t, InternalError, skips[len(skips)-1])
	require.NotContains(t, skips, GPUNode)
}
