package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type declaration struct {
	key string // in the form of uses
	at  token.Position
}

func declarations(set *token.FileSet, file *ast.File, own string) []declaration {
	var list []declaration
	add := func(name *ast.Ident, of string) {
		if name.IsExported() {
			list = append(list, declaration{of + "." + name.Name, set.Position(name.Pos())})
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name, own)
			} else {
				add(d.Name, "")
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					add(spec.Name, own)
				}
			}
		}
	}
	return list
}

// uses collects the identifiers that a file uses: `path.Name` for this module's packages, including
// its own, and `.Name` for possible methods and fields. A declaration is not a use.
func uses(file *ast.File, own string, found map[string]bool) {
	imported := map[string]string{}
	for _, i := range file.Imports {
		of, err := strconv.Unquote(i.Path.Value)
		if err != nil || !strings.HasPrefix(of, module) {
			continue
		}
		name := path.Base(of)
		if i.Name != nil {
			name = i.Name.Name
		}
		imported[name] = of
	}
	declares := map[*ast.Ident]bool{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			declares[d.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					declares[spec.Name] = true
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			found["."+n.Sel.Name] = true
			if from, ok := n.X.(*ast.Ident); ok && imported[from.Name] != "" {
				found[imported[from.Name]+"."+n.Sel.Name] = true
			}
		case *ast.InterfaceType:
			for _, m := range n.Methods.List { // implementations are used through the interface
				for _, name := range m.Names {
					found["."+name.Name] = true
				}
			}
		case *ast.Ident:
			if !declares[n] {
				found[own+"."+n.Name] = true
			}
		}
		return true
	})
}

// Finds exported core code that only tools call: a conformance case that passes with it proves
// nothing about the programs. Methods are matched by name only.
func TestCore_ToolsUseOnlyCodeOfPrograms(t *testing.T) {
	byPrograms, byTools, declared := map[string]bool{}, map[string]bool{}, []declaration{}
	for _, p := range append(listPackages(t, "./..."), listLab(t)...) {
		tool := strings.HasPrefix(p.inner(), "hack/") || strings.HasPrefix(p.inner(), "lab/") || strings.HasPrefix(p.inner(), "pkg/testkit") || slices.Contains(testPackages, p.inner())
		for _, file := range p.GoFiles {
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			if tool {
				uses(parsed, p.ImportPath, byTools)
				continue
			}
			uses(parsed, p.ImportPath, byPrograms)
			if strings.HasPrefix(p.inner(), "pkg/core/") {
				declared = append(declared, declarations(set, parsed, p.ImportPath)...)
			}
		}
	}
	require.Greater(t, len(declared), 500)
	for _, d := range declared {
		if byTools[d.key] && !byPrograms[d.key] {
			t.Errorf("dead code: %s: tools call %s, but no program does", d.at, d.key)
		}
	}
}
