package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

const readme = "README.md"

type page struct {
	anchors map[string]bool // of its headings
	links   []string        // to files of the repository, relative to the page
}

var (
	linkOf    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingOf = regexp.MustCompile(`^#+ +(.*?) *#*$`)
	fence     = regexp.MustCompile("^ *```")
)

// readPage parses a page, named from the root of the repository. Code blocks are ignored.
func readPage(t *testing.T, name string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	require.NoError(t, err)
	p := page{anchors: map[string]bool{}}
	code := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if fence.MatchString(line) {
			code = !code
		}
		if code {
			continue
		}
		if heading := headingOf.FindStringSubmatch(line); heading != nil {
			p.anchors[p.uniqueAnchor(anchor(heading[1]))] = true
		}
		for _, link := range linkOf.FindAllStringSubmatch(line, -1) {
			if !strings.Contains(link[1], "://") {
				p.links = append(p.links, link[1])
			}
		}
	}
	return p
}

func (p page) uniqueAnchor(anchor string) string {
	for i, name := 1, anchor; ; i++ {
		if !p.anchors[name] {
			return name
		}
		name = fmt.Sprintf("%s-%d", anchor, i)
	}
}

// anchor returns the link anchor of a heading: its letters, digits, hyphens and underscores in
// lower case, with a hyphen for each space.
func anchor(heading string) string {
	heading = linkOf.ReplaceAllString(heading, "]")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func linkTarget(from, link string) (file, anchor string) {
	file, anchor, _ = strings.Cut(link, "#")
	if file == "" {
		return from, anchor
	}
	return filepath.ToSlash(filepath.Join(filepath.Dir(from), file)), anchor
}

func isPage(name string) bool { return strings.HasSuffix(name, ".md") }

func userPages(t *testing.T) []string {
	t.Helper()
	pages := []string{readme, "CHANGELOG.md", "CONTRIBUTING.md", "charts/loadline/README.md", "hack/cluster/README.md", "hack/conformance/README.md"}
	for _, folder := range []string{"docs/", "lab/docs/"} {
		found, err := filepath.Glob("../../" + folder + "*.md")
		require.NoError(t, err)
		for _, name := range found {
			pages = append(pages, folder+filepath.Base(name))
		}
	}
	return pages
}

func TestDocs_LinksResolve(t *testing.T) {
	for _, name := range userPages(t) {
		for _, link := range readPage(t, name).links {
			file, anchor := linkTarget(name, link)
			_, err := os.Stat(filepath.Join("../..", file))
			if err != nil {
				t.Errorf("%s: %s leads nowhere: %v", name, link, err)
			} else if anchor != "" && isPage(file) && !readPage(t, file).anchors[anchor] {
				t.Errorf("%s: %s has no heading for #%s", name, file, anchor)
			}
		}
	}
}

// Readers start at the README and reach every page through at most one other page.
func TestDocs_ReachableFromReadme(t *testing.T) {
	near := []string{readme}
	for _, link := range readPage(t, readme).links {
		if file, _ := linkTarget(readme, link); isPage(file) {
			near = append(near, file)
		}
	}
	found := map[string]bool{}
	for _, name := range near {
		for _, link := range readPage(t, name).links {
			file, _ := linkTarget(name, link)
			found[file] = true
		}
	}
	for _, name := range userPages(t) {
		require.True(t, found[name] || !strings.Contains(name, "docs/"), "%s is linked neither by the README nor by a page that the README links", name)
	}
}

func TestReadme_EndsWithAtMostTenLinks(t *testing.T) {
	text, err := os.ReadFile("../../" + readme)
	require.NoError(t, err)
	_, more, found := strings.Cut(string(text), "\n## More\n")
	require.True(t, found)
	more, _, _ = strings.Cut(more, "\n## ")
	links := linkOf.FindAllStringSubmatch(more, -1)
	require.LessOrEqual(t, len(links), 10, "a new user reads a short list: let one of these pages link to the others")
	require.Equal(t, "docs/getting-started.md", links[0][1])
}

func TestDocs_NamedTestsExist(t *testing.T) {
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9_]+)`")
	wanted := map[string]string{} // pages by test
	for _, name := range userPages(t) {
		text, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		for _, found := range named.FindAllStringSubmatch(string(text), -1) {
			wanted[found[1]] = name
		}
	}
	require.Contains(t, wanted, "TestCRDs_MatchUpstream")
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\([tf] \*testing\.[TF]\)`)
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllStringSubmatch(string(text), -1) {
			delete(wanted, found[1])
		}
		return err
	}))
	require.Empty(t, wanted)
}

// A page with commands ends with the test or the date of their last run, so that readers can judge
// their age.
func TestDocs_StateHowCommandsWereTested(t *testing.T) {
	command := regexp.MustCompile(`(?m)^(?:    )?(?:\$ )?(?:kubectl|helm|make|go|git|sudo|bin/\S+|hack/\S+|loadline-cluster|curl) [a-z-]`)
	tried := regexp.MustCompile(`(?m)^How the commands of this page were tried: .*(?:` + "`Test[A-Z]" + `|[1-9][0-9]? [A-Z][a-z]+ 20[0-9]{2})`)
	for _, name := range userPages(t) {
		text, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		code, shown := false, ""
		for line := range strings.Lines(string(text)) {
			if fence.MatchString(line) {
				code = !code
				continue
			}
			if (code || strings.HasPrefix(line, "    ")) && command.MatchString(line) {
				shown = strings.TrimSpace(line)
				break
			}
		}
		if shown != "" && !tried.Match(text) {
			t.Errorf("%s shows %q: say at its end \"How the commands of this page were tried: …\", with a test or a day", name, shown)
		}
	}
}

// bareSwitch matches unquoted On and Off values of modes, which kubectl parses as booleans.
var bareSwitch = regexp.MustCompile(`(?:[mM]ode|[sS]izing): *(?:On|Off)\b`)

func TestDocs_QuoteOnAndOff(t *testing.T) {
	for _, name := range userPages(t) {
		text, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		for _, found := range bareSwitch.FindAllString(string(text), -1) {
			t.Errorf("%s: %q needs quotation marks around the value", name, found)
		}
	}
}
