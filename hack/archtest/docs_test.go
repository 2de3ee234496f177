package archtest

import (
	"fmt"
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

// declared returns the tests, fuzz targets and benchmarks of all modules, with the
// file that has them.
func declared(t *testing.T) map[string]string {
	found := map[string]string{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range declaration.FindAllStringSubmatch(string(text), -1) {
			found[match[1]] = filepath.ToSlash(path)
		}
		return err
	}))
	return found
}

// A page that names a test as proof must name one that there is.
func TestTestsThatPagesNameExist(t *testing.T) {
	tests := declared(t)
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)`").FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, tests, match[1], "%s names %s, which is in no file", page, match[1])
			named++
		}
	}
	require.NotZero(t, named)
}

// Each defect of the reference that concerns the webhook has a test with its
// number, and the page that says what proves it names all of these.
func TestEachDefectOfTheWebhookHasATestWithItsNumber(t *testing.T) {
	text, err := os.ReadFile("../../docs/admission-tests.md")
	require.NoError(t, err)
	page := string(text)
	for _, number := range []int{5, 6, 7, 8, 11, 12, 14, 15, 17, 18, 19} {
		require.Regexp(t, fmt.Sprintf("(?m)^\\| D%d, .*`TestD%d[A-Z]", number, number), page)
	}
	for name, file := range declared(t) {
		if strings.HasPrefix(file, "../../admission-controller/") && regexp.MustCompile(`^TestD\d`).MatchString(name) {
			require.Contains(t, page, "`"+name+"`", "docs/admission-tests.md does not name a test of %s", file)
		}
	}
}
