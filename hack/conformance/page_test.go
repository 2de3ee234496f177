package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func listedCases(t *testing.T, page string) (all []string) {
	t.Helper()
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	_, section, found := strings.Cut(string(content), "\n## Cases that differ by design\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	row := regexp.MustCompile("(?m)^\\| (`.*) \\(([a-z]+)\\) \\|")
	one := regexp.MustCompile("(to )?`([^`]+)`")
	for _, r := range row.FindAllStringSubmatch(section, -1) {
		stem, last := "", 0
		for _, m := range one.FindAllStringSubmatch(r[1], -1) {
			name := m[2]
			if strings.HasPrefix(name, "-") {
				name = stem + name
			}
			at := strings.LastIndex(name, "-")
			number, err := strconv.Atoi(name[at+1:])
			if err != nil { // a name without a number
				all = append(all, r[2]+" "+name)
				continue
			}
			stem = name[:at]
			if m[1] == "" {
				last = number - 1
			}
			for last < number {
				last++
				all = append(all, fmt.Sprintf("%s %s-%03d", r[2], stem, last))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestReadme_ListsDeviationsByDesign(t *testing.T) {
	code, out, _ := conformance("-vectors", ours)
	require.Zero(t, code)
	file, differ := "", []string(nil)
	for line := range strings.Lines(out) {
		if name, _, is := strings.Cut(line, ".json: "); is {
			file = name
		}
		if rest, is := strings.CutPrefix(line, "  by design "); is {
			name, _, _ := strings.Cut(rest, " (")
			differ = append(differ, file+" "+name)
		}
	}
	slices.Sort(differ)
	require.Equal(t, differ, listedCases(t, "README.md"))
}
