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

// declaration is an exported name of a core package.
type declaration struct {
	key string // as uses notes it
	at  token.Position
}

// declarations returns the exported functions, methods and types of a file.
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

// uses notes what a file uses: `path.Name` of the exported names of our packages, and
// `.Name` of what may be a method or a field. Names of the file's own package are
// `path.Name`, too. The identifier that declares a name is no use of it.
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
			for _, m := range n.Methods.List { // whoever has the method has it for this
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

// TestToolsCallWhatProgramsCall finds exported code of the core that tools call and no
// program does. A conformance case that passes with such code proves nothing about the
// programs. A method counts as used where any of its name is.
func TestToolsCallWhatProgramsCall(t *testing.T) {
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
