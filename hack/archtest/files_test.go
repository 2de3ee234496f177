package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var goFile = regexp.MustCompile(`[\w./-]*\w\.go\b`)

// Finds references to files that were renamed or merged.
func TestDocs_NamedFilesExist(t *testing.T) {
	names, texts := map[string]bool{}, []string{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if name := entry.Name(); name == "bin" || name == "testdata" || strings.HasPrefix(name, ".git") {
				return filepath.SkipDir
			}
			return nil
		case strings.HasSuffix(path, ".go"):
			names[entry.Name()] = true
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".md") {
			texts = append(texts, path)
		}
		return nil
	}))
	for _, path := range texts {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.HasSuffix(path, ".go") && !strings.HasPrefix(strings.TrimSpace(line), "//") {
				continue
			}
			for _, named := range goFile.FindAllString(line, -1) {
				_, beside := os.Stat(filepath.Join(filepath.Dir(path), named))
				_, below := os.Stat(filepath.Join("../..", named))
				if beside != nil && below != nil && !names[named] && named != "file.go" { // as in file.go:line
					t.Errorf("%s names %s, which does not exist", strings.TrimPrefix(path, "../../"), named)
				}
			}
		}
	}
}
