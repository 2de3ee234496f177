package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "loadline.dev/loadline/"

// goPackage is the part of `go list -json` that these tests need.
type goPackage struct {
	ImportPath string
	Name       string
	Dir        string
	Standard   bool
	GoFiles    []string
	Imports    []string
	Deps       []string
}

func (l goPackage) inner() string { return strings.TrimPrefix(l.ImportPath, module) }

func listPackages(t *testing.T, patterns ...string) []goPackage {
	t.Helper()
	return listPackagesIn(t, "../..", patterns...)
}

func listLab(t *testing.T) []goPackage {
	t.Helper()
	return listPackagesIn(t, "../../lab", "./...")
}

func listPackagesIn(t *testing.T, directory string, patterns ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Name,Dir,Standard,GoFiles,Imports,Deps"}, patterns...)...)
	cmd.Dir = directory
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s", cmd, stderr.String())
	var all []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var one goPackage
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, one)
	}
}

// corePackages are the core packages in the order of docs/architecture.md. Each may import only
// earlier ones and the standard library.
var corePackages = []string{"reason", "resources", "histogram", "usage", "sketch", "sharing", "recipe",
	"policy", "fleet", "rollout", "disruption",
	"replay", "backtest", "nodes"}

// impure are packages of the standard library that perform I/O or hide concurrency.
var impure = []string{"net", "os", "sync", "log", "syscall", "math/rand", "crypto/rand", "context"}

var impureExceptions = map[string]string{"histogram": "sync/atomic"} // lazily filled tables without a lock

func TestCore_ImportsOnlyStandardLibraryAndLowerCore(t *testing.T) {
	standard := map[string]bool{}
	for _, p := range listPackages(t, "std") {
		standard[p.ImportPath] = true
	}
	for _, p := range listPackages(t, "./pkg/core/...") {
		name := strings.TrimPrefix(p.inner(), "pkg/core/")
		place := slices.Index(corePackages, name)
		require.GreaterOrEqual(t, place, 0, "%s is not in the list of core packages: add it there and to docs/architecture.md", p.inner())
		for _, imported := range p.Imports {
			if other, isCore := strings.CutPrefix(imported, module+"pkg/core/"); isCore {
				require.Contains(t, corePackages[:place], other, "core rule: %s must not import core package %s", p.inner(), other)
				continue
			}
			require.True(t, standard[imported], "core rule: %s imports %s, which is not in the standard library", p.inner(), imported)
			for _, forbidden := range impure {
				reachesOut := imported == forbidden || strings.HasPrefix(imported, forbidden+"/")
				require.False(t, reachesOut && imported != impureExceptions[name],
					"core rule: %s imports %s; the core does no I/O, no locking and no logging", p.inner(), imported)
			}
		}
	}
}

// binaries are the folders of the programs. Code in them belongs to one program only.
var binaries = []string{"recommender", "updater", "admission-controller", "kubectl-loadline"}

func binaryOf(inner string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(inner, "cmd/"), "/")
	if slices.Contains(binaries, first) {
		return first
	}
	return ""
}

func TestImports_PointInwards(t *testing.T) {
	for _, p := range listPackages(t, "./...") {
		if strings.HasPrefix(p.inner(), "hack/") {
			continue // checks may import everything
		}
		for _, imported := range p.Imports {
			inner, ours := strings.CutPrefix(imported, module)
			if !ours {
				continue
			}
			if owner := binaryOf(inner); owner != "" {
				require.Equal(t, owner, binaryOf(p.inner()),
					"ring rule: %s imports %s, which belongs to the program %s; code for two programs goes to pkg", p.inner(), inner, owner)
			}
			require.False(t, strings.HasPrefix(inner, "pkg/testkit"), "ring rule: %s imports %s outside a test", p.inner(), inner)
			if strings.HasPrefix(p.inner(), "apis/") {
				require.True(t, strings.HasPrefix(inner, "apis/"), "ring rule: %s imports %s; wire types stand alone", p.inner(), inner)
			}
		}
	}
}

// The webhook validates schedules with its own time zones, so the other programs need the same
// ones.
func TestPrograms_EmbedTimeZones(t *testing.T) {
	for _, p := range listPackages(t, "./cmd/...", "./kubectl-loadline") {
		require.Contains(t, p.Deps, "time/tzdata", "%s finds no time zones in its image", p.inner())
	}
}

func TestPrograms_LinkNoTemplates(t *testing.T) {
	for _, p := range listPackages(t, "./cmd/...") {
		for _, forbidden := range []string{"text/template", "html/template"} {
			require.NotContains(t, p.Deps, forbidden,
				"size rule: %s links %s, and with it every exported method of every type", p.inner(), forbidden)
		}
		for _, dep := range p.Deps {
			require.False(t, strings.HasPrefix(dep, "sigs.k8s.io/controller-runtime"), "dependency rule: %s links %s", p.inner(), dep)
		}
	}
}

// The plugin's command library imports templates but runs them only for custom templates. Only the
// symbols that the linker keeps matter.
func TestPlugin_RunsNoTemplates(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "kubectl-loadline")
	build := exec.Command("go", "build", "-o", binary, "./kubectl-loadline")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath") // as make plugin does
	text, err := build.CombinedOutput()
	require.NoError(t, err, string(text))
	symbols, err := exec.Command("go", "tool", "nm", binary).Output()
	require.NoError(t, err)
	require.True(t, bytes.Contains(symbols, []byte("cobra.(*Command).ExecuteC")), "the list of symbols is not what it was")
	require.False(t, bytes.Contains(symbols, []byte("template.(*Template).Execute")),
		"size rule: kubectl-loadline runs templates, and with them has every exported method of every type")
}

// Different versions compile all importers once more in each variant, which adds minutes to a clean
// test run. hack/cluster follows the versions of Kubernetes, and hack/tools/lint shares nothing
// with the programs.
func TestModules_ShareVersions(t *testing.T) {
	ours := required(t, "../../go.mod")
	require.NotEmpty(t, ours)
	for _, other := range []string{"../../e2e/go.mod", "../../lab/go.mod", "../../hack/tools/go.mod"} {
		for module, version := range required(t, other) {
			if own, shared := ours[module]; shared && own != version {
				t.Errorf("%s wants %s in version %s, go.mod in version %s: `go get` the later one in both", other, module, version, own)
			}
		}
	}
}

func required(t *testing.T, file string) map[string]string {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	versions := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) (v\S+)`).FindAllStringSubmatch(string(text), -1) {
		versions[line[1]] = line[2]
	}
	return versions
}
