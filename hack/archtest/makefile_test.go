package archtest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// `make unit` skips SIMULATIONS with the race detector in all packages, and runs them without it in
// the packages of SIMULATING.
func TestMakefile_RunsEachSkippedTest(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../..", "Makefile"))
	require.NoError(t, err)
	variable := func(name string) string {
		found := regexp.MustCompile(`(?m)^` + name + ` := (.*)$`).FindSubmatch(text)
		require.NotNil(t, found, name)
		return string(found[1])
	}
	ran := strings.Fields(variable("SIMULATING"))
	skipped := regexp.MustCompile(variable("SIMULATIONS"))
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	used := map[string]bool{}
	require.NoError(t, fs.WalkDir(os.DirFS("../.."), ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist", "e2e", "lab"}, file):
			return fs.SkipDir
		case !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(filepath.Join("../..", file))
		for _, test := range declared.FindAllSubmatch(source, -1) {
			if pattern := skipped.FindString(string(test[1])); pattern != "" {
				require.Contains(t, ran, "./"+path.Dir(file), "%s of %s would not run: SIMULATING of the Makefile must have its package", test[1], file)
				used[pattern] = true
			}
		}
		return err
	}))
	for pattern := range strings.SplitSeq(variable("SIMULATIONS"), "|") {
		require.True(t, used[pattern], "SIMULATIONS of the Makefile: no test is called %s", pattern)
	}
}
