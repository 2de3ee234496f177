package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const maxFileLines = 500

func handwritten(all []goPackage) []goPackage {
	return slices.DeleteFunc(all, func(p goPackage) bool { return strings.HasPrefix(p.inner(), "pkg/generated/") })
}

func lines(t *testing.T, name string) int {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return bytes.Count(content, []byte("\n"))
}

func TestSource_FileLengthAndPackageNames(t *testing.T) {
	for _, p := range handwritten(append(listPackages(t, "./..."), listLab(t)...)) {
		for _, empty := range []string{"util", "utils", "common", "helper", "helpers", "logic", "misc"} {
			require.NotEqual(t, empty, p.Name, "%s: the name says nothing", p.inner())
		}
		for _, file := range p.GoFiles {
			if strings.HasPrefix(file, "zz_generated") {
				continue
			}
			require.LessOrEqual(t, lines(t, filepath.Join(p.Dir, file)), maxFileLines, "%s/%s: split the file", p.inner(), file)
		}
	}
}

// Finds goroutines, channels and uses of the clock, which imports do not reveal.
func TestCore_IsPure(t *testing.T) {
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

// forbid reports each use of one of the names, such as fmt.Print, in the packages.
func forbid(t *testing.T, rule string, names []string, packages []goPackage) {
	t.Helper()
	for _, p := range packages {
		for _, file := range p.GoFiles {
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, filepath.Join(p.Dir, file), nil, 0)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				if used, ok := n.(*ast.SelectorExpr); ok {
					if from, ok := used.X.(*ast.Ident); ok && slices.Contains(names, from.Name+"."+used.Sel.Name) {
						t.Errorf("%s: %s.%s in %s", rule, from.Name, used.Sel.Name, set.Position(n.Pos()))
					}
				}
				return true
			})
		}
	}
}

func TestPlugin_EscapesOutput(t *testing.T) {
	unescaped := []string{"fmt.Fprint", "fmt.Fprintf", "fmt.Fprintln", "fmt.Print", "fmt.Printf", "fmt.Println", "csv.NewWriter", "yaml.Marshal"}
	forbid(t, "output rule: control characters are printed, use package printable", unescaped, listPackages(t, "./kubectl-loadline/..."))
}

// Finds program code that listens, connects or reads the host name without process.Environment.
func TestPrograms_UseProcessEnvironment(t *testing.T) {
	machine := []string{"net.Listen", "net.Dial", "net.DialTimeout", "net.Dialer", "net.DefaultResolver", "os.Hostname", "os.Stdout", "http.DefaultTransport", "http.DefaultClient", "http.Get"}
	packages := slices.DeleteFunc(handwritten(listPackages(t, "./...")), func(p goPackage) bool {
		program, _, _ := strings.Cut(p.inner(), "/")
		return slices.Contains([]string{"hack", "cmd", "kubectl-loadline"}, program) || p.inner() == "pkg/process" || strings.HasPrefix(p.inner(), "pkg/testkit")
	})
	require.Greater(t, len(packages), 40)
	forbid(t, "environment rule: use process.Environment", machine, packages)
}
