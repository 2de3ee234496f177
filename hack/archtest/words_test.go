package archtest

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// minWords is the number of comment words below which a package is exempt from TestComments_UsePlainEnglish.
const minWords = 300

// wordLimits are turns of phrase that the Kubernetes ecosystem hardly uses, with the most of them that
// a package may have in 1,000 words of comments.
var wordLimits = []struct {
	name    string
	pattern *regexp.Regexp
	max     float64
}{
	{"what", regexp.MustCompile(`(?i)\bwhat\b`), 3},
	{"says, tells, asks, knows, wants", regexp.MustCompile(`(?i)\b(says?|said|tells?|told|asks?|asked|knows?|known|wants?)\b`), 4},
	{"those, that of", regexp.MustCompile(`(?i)\b(those|that of|the ones? that)\b`), 1.5},
	{"who, nobody, somebody", regexp.MustCompile(`(?i)\b(who|whoever|(no|some|any|every)body|(some|any)one)\b`), 0.5},
}

var (
	word      = regexp.MustCompile(`[A-Za-z][A-Za-z'-]*`)
	directive = regexp.MustCompile(`^//(go:|nolint|\+|line )`)
)

// TestComments_UsePlainEnglish fails a package with too many turns of phrase that need a second reading.
func TestComments_UsePlainEnglish(t *testing.T) {
	for _, p := range handwritten(append(listPackages(t, "./..."), listLab(t)...)) {
		var text strings.Builder
		for _, file := range p.GoFiles {
			if strings.HasPrefix(file, "zz_generated") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ParseComments)
			require.NoError(t, err)
			for _, group := range parsed.Comments {
				for _, comment := range group.List {
					if !directive.MatchString(comment.Text) {
						text.WriteString(comment.Text + "\n")
					}
				}
			}
		}
		words := len(word.FindAllString(text.String(), -1))
		if words < minWords {
			continue
		}
		for _, limit := range wordLimits {
			found := len(limit.pattern.FindAllString(text.String(), -1))
			if per := 1000 * float64(found) / float64(words); per > limit.max {
				t.Errorf("%s: comments use %q %.1f times in 1,000 words, at most %g: rewrite the sentence with the noun or verb of the field", p.inner(), limit.name, per, limit.max)
			}
		}
	}
}
