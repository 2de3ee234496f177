package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
)

const comingFrom = "docs/coming-from.md"

var (
	span       = regexp.MustCompile("`([^`]+)`")
	identifier = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	kebab      = regexp.MustCompile(`^[a-z]+(-[a-z0-9]+)*$`)
	fieldName  = regexp.MustCompile(`^[a-z][A-Za-z]*(\.[a-z][A-Za-z]*)*$`)
)

func sectionsOf(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	require.NoError(t, err)
	sections := map[string]string{}
	for part := range strings.SplitSeq("\n"+string(text), "\n## ") {
		heading, body, _ := strings.Cut(part, "\n")
		sections[heading] = body
	}
	return sections
}

func rows(section string) (all [][]string) {
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "|---"):
			all = all[:len(all)-1]
		case strings.HasPrefix(line, "|"):
			all = append(all, strings.Split(strings.Trim(line, "|"), "|"))
		}
	}
	return all
}

func spans(text string) (all []string) {
	for _, found := range span.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

func blocks(section, language string) (all []string) {
	parts := strings.Split(section, "\n```"+language+"\n")
	for _, part := range parts[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		all = append(all, block)
	}
	return all
}

func foreignNames(t *testing.T) map[[2]string][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/foreign-names.txt")
	require.NoError(t, err)
	names := map[[2]string][]string{}
	for paragraph := range strings.SplitSeq(string(text), "\n\n") {
		if strings.HasPrefix(paragraph, "#") {
			continue
		}
		head, list, _ := strings.Cut(strings.TrimSpace(paragraph), "\n")
		system, kind, found := strings.Cut(head, " ")
		require.True(t, found, head)
		names[[2]string{system, kind}] = strings.Fields(list)
	}
	return names
}

func TestComingFrom_MapsEachForeignName(t *testing.T) {
	sections := sectionsOf(t, comingFrom)
	for key, names := range foreignNames(t) {
		mapped := map[string]bool{}
		for _, cells := range rows(sections[key[0]]) {
			require.Len(t, cells, 2, "%s: %v", key[0], cells)
			require.NotEmpty(t, strings.TrimSpace(cells[1]), "%s: %s has no counterpart and no reason", key[0], cells[0])
			for _, name := range spans(cells[0]) {
				mapped[name] = true
			}
		}
		for _, name := range names {
			if !mapped[name] {
				t.Errorf("%s: %s has no row for the %s %q of %s", comingFrom, key[0], key[1], name, key[0])
			}
		}
	}
}

// ownNames are the names of Loadline that a page may use.
type ownNames struct {
	flags, metrics, fields map[string]bool
	source                 string // Go code of all programs
}

func readOwnNames(t *testing.T) ownNames {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		return string(text)
	}
	o := ownNames{flags: map[string]bool{}, metrics: map[string]bool{}, fields: map[string]bool{}}
	for line := range strings.Lines(read("kubectl-loadline/programs/known-flags.txt")) {
		words := strings.Fields(line)
		o.flags["--"+words[1]], o.flags[words[0]+" --"+words[1]] = true, true
	}
	for _, name := range spans(read("docs/monitoring.md")) {
		o.metrics[name] = true
	}
	for _, name := range spans(read("docs/api.md")) {
		name = strings.ReplaceAll(name, "[]", "")
		o.fields[name], o.fields[strings.TrimPrefix(name, "spec.")] = true, true
	}
	var source strings.Builder
	for _, p := range listPackages(t, "./...") {
		for _, file := range p.GoFiles {
			if !strings.HasPrefix(p.inner(), "hack/") {
				text, err := os.ReadFile(filepath.Join(p.Dir, file))
				require.NoError(t, err)
				source.Write(text)
			}
		}
	}
	for _, found := range regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(read("deploy/monitoring/rules.yaml"), -1) {
		source.WriteString(`"` + found[1] + `"`)
	}
	o.source = source.String()
	return o
}

// has reports whether a name exists. known is false if it does not look like a name of Loadline.
func (o ownNames) has(name, recipeName string) (exists, known bool) {
	name, _, _ = strings.Cut(name, "{")
	bare, _, _ := strings.Cut(name, ":")
	bare, _, _ = strings.Cut(bare, "=")
	switch {
	case strings.HasPrefix(bare, "--"):
		return o.flags[bare], true
	case strings.HasPrefix(bare, "kubectl "): // see TestDocs_CommandsExist
		return true, true
	case strings.HasPrefix(bare, "loadline_"), strings.HasPrefix(bare, "vpa_"):
		return o.metrics[bare], true
	case strings.HasPrefix(bare, "loadline.dev/"):
		return strings.Contains(o.source, `"`+bare+`"`), true
	case strings.HasPrefix(bare, "deploy/"):
		_, err := os.Stat("../../" + bare)
		return err == nil, true
	case slices.Contains(recipe.Names(), bare):
		return true, true
	case identifier.MatchString(bare):
		return strings.Contains(o.source, `"`+bare+`"`), true
	case fieldName.MatchString(bare) && o.fields[bare]:
		return true, true
	case kebab.MatchString(bare):
		_, err := recipe.Parse(recipeName + ":" + bare + "=?")
		return err != nil && !strings.Contains(err.Error(), "does not exist"), true
	case fieldName.MatchString(bare): // an upstream annotation, or unknown
		return strings.Contains(o.source, `"`+bare+`"`), true
	}
	return false, false
}

func TestComingFrom_UsesExistingNames(t *testing.T) {
	o := readOwnNames(t)
	sections := sectionsOf(t, comingFrom)
	for _, heading := range []string{"Attune", "Crane", "CruiseKube", "Autopilot"} {
		recipeName := strings.ToLower(heading)
		for _, cells := range rows(sections[heading]) {
			for _, name := range spans(cells[1]) {
				switch exists, known := o.has(name, recipeName); {
				case !known:
					t.Errorf("%s: %s: %q is not a name of Loadline: write it without backquotes", comingFrom, heading, name)
				case !exists:
					t.Errorf("%s: %s: %q does not exist", comingFrom, heading, name)
				}
			}
		}
	}
}

func TestComingFrom_ExamplesAreAccepted(t *testing.T) {
	o := readOwnNames(t)
	for heading, section := range sectionsOf(t, comingFrom) {
		for _, text := range blocks(section, "yaml") {
			var policy loadlinev1alpha1.SizingPolicy
			require.NoError(t, yaml.UnmarshalStrict([]byte(text), &policy), heading)
			problems, _ := convert.CheckPolicy(&policy)
			require.Empty(t, problems, heading)
		}
		for _, text := range blocks(section, "text") {
			for line := range strings.Lines(text) {
				program, arguments, found := strings.Cut(strings.TrimSpace(line), ":")
				require.True(t, found, line)
				for argument := range strings.FieldsSeq(arguments) {
					name, _, _ := strings.Cut(argument, "=")
					require.True(t, o.flags[program+" "+name], "%s: %s has no flag %s", heading, program, name)
				}
			}
		}
	}
	overlay, err := os.ReadFile("../../deploy/overlays/cruisekube/policy.yaml")
	require.NoError(t, err)
	shown := blocks(sectionsOf(t, comingFrom)["CruiseKube"], "yaml")
	require.Len(t, shown, 1)
	require.YAMLEq(t, string(overlay), shown[0])
}
