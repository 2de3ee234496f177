package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/disruption"
)

func TestEveryReasonIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reasons.md")
	require.NoError(t, err)
	for _, reason := range disruption.Reasons() {
		require.Contains(t, string(page), "| "+reason.String()+" |", "docs/reasons.md does not say what to do about %s", reason)
	}
}

// A page that names a test as proof must name one that there is.
func TestTestsThatPagesNameExist(t *testing.T) {
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range declaration.FindAllStringSubmatch(string(text), -1) {
			declared[match[1]] = true
		}
		return err
	}))
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1) {
			require.True(t, declared[match[1]], "%s names %s, which is in no file", page, match[1])
			named++
		}
	}
	require.NotZero(t, named)
}
