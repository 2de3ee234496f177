package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxFuncFields limits the exported struct fields that hold functions, by top-level folder. They
// hide the implementation: prefer a value, a concrete type, or an interface. Lower a limit when its
// count falls.
var maxFuncFields = map[string]int{"admission-controller": 2, "kubectl-loadline": 0, "pkg": 8, "recommender": 0, "updater": 0}

// funcTypes are the named function types of all packages, as path.Name.
type funcTypes map[string]bool

func (f funcTypes) add(p *goPackage, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if _, ok := spec.Type.(*ast.FuncType); ok {
				f[p.ImportPath+"."+spec.Name.Name] = true
			}
		}
		return true
	})
}

func (f funcTypes) hold(p *goPackage, file *ast.File, of ast.Expr) (found bool) {
	ast.Inspect(of, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			found = true
		case *ast.StructType, *ast.InterfaceType:
			return false
		case *ast.Ident:
			found = found || f[p.ImportPath+"."+n.Name]
		case *ast.SelectorExpr:
			name, ok := n.X.(*ast.Ident)
			found = found || ok && f[importedAs(file, name.Name)+"."+n.Sel.Name]
			return false
		}
		return true
	})
	return found
}

func importedAs(file *ast.File, name string) string {
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if spec.Name != nil && spec.Name.Name == name || spec.Name == nil && path[strings.LastIndex(path, "/")+1:] == name {
			return path
		}
	}
	return ""
}

func TestStructs_LimitFunctionFields(t *testing.T) {
	packages := handwritten(listPackages(t, "./..."))
	set, known, files := token.NewFileSet(), funcTypes{}, map[*goPackage][]*ast.File{}
	for i := range packages {
		p := &packages[i]
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, 0)
			require.NoError(t, err)
			known.add(p, file)
			files[p] = append(files[p], file)
		}
	}
	found := map[string][]string{}
	for p, all := range files {
		top, _, _ := strings.Cut(p.inner(), "/")
		for _, file := range all {
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if structure, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range structure.Fields.List {
						for _, name := range field.Names {
							if name.IsExported() && known.hold(p, file, field.Type) {
								found[top] = append(found[top], p.inner()+": "+spec.Name.Name+"."+name.Name)
							}
						}
					}
				}
				return true
			})
		}
	}
	for _, top := range slices.Sorted(maps.Keys(maxFuncFields)) {
		slices.Sort(found[top])
		if len(found[top]) != maxFuncFields[top] {
			t.Errorf("function field rule: the bound of %s is %d, but it has %d: %s", top, maxFuncFields[top], len(found[top]), strings.Join(found[top], ", "))
		}
	}
}
