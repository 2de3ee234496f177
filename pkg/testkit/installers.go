package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Installers calls accepts, which must return no error, with the arguments that installers of the
// reference VPA pass. Each file in testdata/installers has the arguments of one installer.
func Installers(t *testing.T, accepts func(args []string) error) {
	files, err := filepath.Glob("testdata/installers/*.args")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, accepts(strings.Fields(string(text))))
		})
	}
}
