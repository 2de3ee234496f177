package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/flags"
)

// What installers of the reference VPA pass must work here: each file holds the
// arguments of one, a line each.
func TestArgumentListsOfInstallers(t *testing.T) {
	files, err := filepath.Glob("testdata/installers/*.args")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			config, fs := Default(), flags.New("updater")
			config.AddFlags(fs)
			require.NoError(t, fs.Parse(strings.Fields(string(text))))
			require.NoError(t, config.Validate())
		})
	}
}
