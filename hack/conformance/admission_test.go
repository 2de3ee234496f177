package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVectors_AdmissionPasses(t *testing.T) {
	content, err := os.ReadFile("../../testdata/vectors/admission.json")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "admission.json"), content, 0o600))
	s, err := suite()
	require.NoError(t, err)
	report, err := s.Run(dir)
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, report.Print(&text))
	passed, failed, skipped := report.Counts()
	require.Positive(t, passed)
	require.Zero(t, failed+skipped, text.String())
}

func TestSortedNotes_IgnoresOrder(t *testing.T) {
	require.Equal(t, sortedNotes("Pod resources updated by v: container 0: b, a; container 1: "), sortedNotes("Pod resources updated by v: container 0: a, b; container 1: "))
	require.NotEqual(t, sortedNotes("by v: container 0: b"), sortedNotes("by v: container 1: b"))
}
