package layers

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// budgets are the ceilings of docs/architecture.md for lines of code without
// tests and doc.go; a package that exceeds its own needs a page in
// docs/decisions that names it in a line "Budget: <package> <lines>".
var budgets = map[string]int{
	"pkg/core/amount":     150,
	"pkg/core/histogram":  350,
	"pkg/core/profile":    150,
	"pkg/core/usage":      500,
	"pkg/core/estimate":   400,
	"pkg/core/policy":     500,
	"pkg/core/ownership":  150,
	"pkg/core/disruption": 800,
	"pkg/core/present":    500,
	"pkg/core/past":       250,
	"pkg/core/startup":    150,
	"pkg/core/calm":       300,
	"pkg/core/room":       300,
	"pkg/core/scope":      150,
	"pkg/core/portion":    150,
}

const (
	packageBudget = 800
	fileBudget    = 400
)

// handwritten leaves out the packages that are generated as a whole.
func handwritten(all []listed) []listed {
	return slices.DeleteFunc(all, func(p listed) bool { return strings.HasPrefix(p.inner(), "pkg/generated/") })
}

func lines(t *testing.T, name string) int {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return bytes.Count(content, []byte("\n"))
}

// decidedBudgets reads the exceptions from the decision pages.
func decidedBudgets(t *testing.T) map[string]int {
	t.Helper()
	pages, err := filepath.Glob("../../docs/decisions/*.md")
	require.NoError(t, err)
	decided := map[string]int{}
	for _, page := range pages {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		for line := range strings.Lines(string(content)) {
			words := strings.Fields(line)
			if len(words) == 3 && words[0] == "Budget:" {
				limit, err := strconv.Atoi(words[2])
				require.NoError(t, err, "%s: %q: the budget must be a number of lines", page, line)
				decided[words[1]] = limit
			}
		}
	}
	return decided
}

func TestPackagesKeepTheirBudgets(t *testing.T) {
	decided := decidedBudgets(t)
	for _, p := range handwritten(listPackages(t, "./...")) {
		total := 0
		for _, file := range p.GoFiles {
			if file == "doc.go" || strings.HasPrefix(file, "zz_generated") {
				continue
			}
			n := lines(t, filepath.Join(p.Dir, file))
			require.LessOrEqual(t, n, fileBudget, "%s/%s: split the file", p.inner(), file)
			total += n
		}
		budget, own := budgets[p.inner()]
		if !own {
			budget = packageBudget
		}
		if exception, ok := decided[p.inner()]; ok {
			budget = exception
		}
		require.LessOrEqual(t, total, budget, "%s is over its budget: split it, or write a page in docs/decisions", p.inner())
	}
}

func TestPackagesIntroduceThemselves(t *testing.T) {
	names := map[string]string{}
	for _, p := range handwritten(listPackages(t, "./...")) {
		require.Contains(t, p.GoFiles, "doc.go", "%s has no doc.go", p.inner())
		for _, empty := range []string{"util", "utils", "common", "helper", "helpers", "logic", "misc"} {
			require.NotEqual(t, empty, p.Name, "%s: the name says nothing", p.inner())
		}
		if p.Name == "main" || strings.HasPrefix(p.inner(), "apis/") {
			continue
		}
		require.Empty(t, names[p.Name], "%s and %s have the same name", p.inner(), names[p.Name])
		names[p.Name] = p.inner()
	}
}

// TestCoreIsPure reads the source of the core for what imports do not show:
// the clock, goroutines and package variables.
func TestCoreIsPure(t *testing.T) {
	for _, p := range listPackages(t, "./pkg/core/...") {
		for _, file := range p.GoFiles {
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, filepath.Join(p.Dir, file), nil, 0)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				if n == nil {
					return true
				}
				at := set.Position(n.Pos())
				switch n := n.(type) {
				case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt:
					t.Errorf("core rule: %s: the core starts no goroutines", at)
				case *ast.SelectorExpr:
					if from, ok := n.X.(*ast.Ident); ok && from.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker"}, n.Sel.Name) {
						t.Errorf("core rule: %s: time is a parameter, not time.%s", at, n.Sel.Name)
					}
				}
				return true
			})
		}
	}
}
