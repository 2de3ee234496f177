package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// importTables lists, by program, the allowed imports of each of its packages from the same
// program. The empty name is the package in the program's folder.
var importTables = map[string]map[string][]string{
	"kubectl-loadline": {
		"":          {"backtest", "cli", "doctor", "explain", "policies", "sizes"},
		"backtest":  nil, // a library for studies, too
		"cli":       nil,
		"programs":  {"cli"},
		"inventory": {"cli"},
		"explain":   {"cli", "inventory", "programs"},
		"sizes":     {"cli", "inventory", "programs"},
		"doctor":    {"cli", "inventory", "programs"},
		"policies":  {"cli", "inventory", "programs"},
	},
	"updater": {
		"":          {"actuate", "boost", "budgets", "nodeload", "plan", "policies", "records", "report", "rollouts", "shares", "snapshot"},
		"budgets":   nil,
		"nodeload":  nil,
		"nodeshare": nil,
		"podqueue":  nil,
		"records":   nil,
		"report":    nil,
		"snapshot":  {"nodeload"},
		"policies":  {"records", "snapshot"},
		"shares":    {"nodeshare", "policies", "records", "snapshot"},
		"plan":      {"budgets", "policies", "snapshot"},
		"rollouts":  {"podqueue", "policies", "records", "report", "snapshot"},
		"actuate":   {"budgets", "policies", "report", "rollouts", "shares", "snapshot"},
		"boost":     {"actuate", "plan", "podqueue", "policies", "snapshot"},
	},
}

// testPackages are imported by tests only.
var testPackages = []string{"kubectl-loadline/plugintest"}

// maxMainFiles limits the files of main packages that only wire packages, without tests.
var maxMainFiles = map[string]int{"kubectl-loadline": 3}

func inProgram(program, inner string) (name string, inside bool) {
	if inner == program {
		return "", true
	}
	return strings.CutPrefix(inner, program+"/")
}

// tableViolations returns the imports of a program's package that its table does not allow.
func tableViolations(program string, table map[string][]string, p *goPackage) (violations []string) {
	name, _ := inProgram(program, p.inner())
	for _, imported := range p.Imports {
		inner, ours := strings.CutPrefix(imported, module)
		if !ours {
			continue
		}
		if other, inside := inProgram(program, inner); inside && !slices.Contains(table[name], other) {
			violations = append(violations, fmt.Sprintf("%s imports %s", p.inner(), inner))
		}
	}
	return violations
}

func TestProgramPackages_FollowImportTables(t *testing.T) {
	for program, table := range importTables {
		found := map[string]bool{}
		for _, p := range listPackages(t, "./"+program+"/...") {
			if slices.Contains(testPackages, p.inner()) {
				continue
			}
			name, _ := inProgram(program, p.inner())
			_, known := table[name]
			require.True(t, known, "table rule: %s is not in the import table of %s: add it there and to docs/architecture.md", p.inner(), program)
			found[name] = true
			require.Empty(t, tableViolations(program, table, &p), "table rule: the import table of %s", program)
		}
		for name := range table {
			require.True(t, found[name], "table rule: package %q of %s does not exist", name, program)
		}
	}
}

func TestTableViolations_ReportsForbiddenImports(t *testing.T) {
	for _, tc := range []struct {
		name    string
		from    string
		imports []string
		want    []string
	}{
		{name: "allowed import", from: "kubectl-loadline/explain", imports: []string{module + "kubectl-loadline/inventory", module + "pkg/flags", "fmt"}},
		{name: "upward import", from: "kubectl-loadline/cli", imports: []string{module + "kubectl-loadline/explain"}, want: []string{"kubectl-loadline/cli imports kubectl-loadline/explain"}},
		{name: "import of the same level", from: "kubectl-loadline/explain", imports: []string{module + "kubectl-loadline/sizes"}, want: []string{"kubectl-loadline/explain imports kubectl-loadline/sizes"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := goPackage{ImportPath: module + tc.from, Imports: tc.imports}
			require.Equal(t, tc.want, tableViolations("kubectl-loadline", importTables["kubectl-loadline"], &p))
		})
	}
}

func TestImportTables_HaveNoCycles(t *testing.T) {
	for program, table := range importTables {
		var visit func(name string, path []string)
		visit = func(name string, path []string) {
			require.NotContains(t, path, name, "table rule: cycle in the import table of %s", program)
			for _, other := range table[name] {
				visit(other, append(slices.Clone(path), name))
			}
		}
		for name := range table {
			visit(name, nil)
		}
	}
}

func TestTestPackages_ImportedByTestsOnly(t *testing.T) {
	for _, p := range listPackages(t, "./...") {
		if slices.Contains(testPackages, p.inner()) {
			continue
		}
		for _, name := range testPackages {
			require.NotContains(t, p.Imports, module+name, "table rule: %s imports %s outside a test", p.inner(), name)
		}
	}
}

func TestMainPackages_LimitFiles(t *testing.T) {
	for program, limit := range maxMainFiles {
		for _, p := range listPackages(t, "./"+program) {
			require.LessOrEqual(t, len(p.GoFiles), limit, "table rule: %s: move code to a package of the program", p.inner())
		}
	}
}
