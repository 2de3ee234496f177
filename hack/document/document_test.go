package document

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFill_ReplacesOnlyTheNamedSection(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	write := func(text string) { require.NoError(t, os.WriteFile(page, []byte(text), 0o600)) }
	read := func() string {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		return string(text)
	}
	write("# Page\n<!-- a -->\nold\n<!-- end of a -->\nprose\n<!-- a b -->\nother\n<!-- end of a b -->\n")
	require.NoError(t, Fill(page, "a", "| 1 |\n| 2 |\n"))
	want := "# Page\n<!-- a -->\n| 1 |\n| 2 |\n<!-- end of a -->\nprose\n<!-- a b -->\nother\n<!-- end of a b -->\n"
	require.Equal(t, want, read())
	require.NoError(t, Fill(page, "a", "| 1 |\n| 2 |\n"))
	require.Equal(t, want, read(), "once more changes nothing")

	for _, broken := range []string{"nothing\n", "<!-- a -->\nnever ends\n", "<!-- end of a -->\nnever begins\n"} {
		write(broken)
		require.ErrorContains(t, Fill(page, "a", "| 1 |\n"), `must have the lines "<!-- a -->" and "<!-- end of a -->"`)
		require.Equal(t, broken, read())
	}
	require.ErrorIs(t, Fill(filepath.Join(t.TempDir(), "none.md"), "a", ""), os.ErrNotExist)
}
