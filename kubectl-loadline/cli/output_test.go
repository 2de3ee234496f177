package cli_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
)

// text is output with the same text in every place.
type text string

func (a text) Tables() []cli.Table {
	return []cli.Table{{Title: string(a), Columns: []string{"NAME", string(a)}, Rows: [][]string{{string(a), "x"}}}}
}

func (a text) Notes() []string { return []string{string(a)} }

func TestOutput_QuotesControlCharacters(t *testing.T) {
	for _, format := range cli.Formats {
		t.Run(format, func(t *testing.T) {
			plugintest.RequirePrintable(t, plugintest.Printed(t, text(plugintest.Hostile), format))
		})
	}
	require.Equal(t, `=1+1\x1b[2J\x9b\u009b\n! forged\r\tcell\x7f\u202e|:
NAME                                                =1+1\x1b[2J\x9b\u009b\n! forged\r\tcell\x7f\u202e|
=1+1\x1b[2J\x9b\u009b\n! forged\r\tcell\x7f\u202e|  x
=1+1\x1b[2J\x9b\u009b\n! forged\r\tcell\x7f\u202e|
`, plugintest.Printed(t, text(plugintest.Hostile), "table"))
}

// FuzzOutput checks that no text breaks the format: control characters, additional lines or
// columns, and CSV formulas.
func FuzzOutput(f *testing.F) {
	for _, seed := range []string{"web", plugintest.Hostile, "-1", "@SUM(A1)", "a: b\n- c", "\u2028", "'", "a\u202eb", "a\U000e0041b", "\x7f", "\xff\xfe"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed string) {
		if seed == "" {
			return // output without a title has one line less
		}
		for format, lines := range map[string]int{"table": 4, "wide": 4, "md": 7} {
			out := plugintest.Printed(t, text(seed), format)
			for _, r := range out {
				require.True(t, r == '\n' || unicode.IsPrint(r), "%q has %U", out, r)
			}
			require.Equal(t, lines, strings.Count(out, "\n"), out)
		}
		for format, unmarshal := range map[string]func([]byte, any) error{
			"json": json.Unmarshal,
			"yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
		} {
			var back string
			out := plugintest.Printed(t, text(seed), format)
			require.NoError(t, unmarshal([]byte(out), &back))
			require.Equal(t, string([]rune(seed)), back)
			for _, r := range out {
				require.True(t, r == '\n' || unicode.IsPrint(r), "%q has %U", out, r)
			}
		}
		var out, notes bytes.Buffer
		require.NoError(t, (&cli.OutputFlag{Format: "csv"}).Print(&out, &notes, text(seed)))
		rows, err := csv.NewReader(&out).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 2)
		for _, row := range rows {
			for _, cell := range row {
				require.False(t, strings.ContainsAny(cell, "\n\r\t\x1b"))
				if strings.IndexAny(cell, "=@") == 0 || strings.IndexAny(cell, "+-") == 0 && strings.ContainsFunc(cell, unicode.IsLetter) {
					require.Regexp(t, `^[+-](Inf|\d+(\.\d*)?[eE][+-]?\d+)$`, cell)
				}
			}
		}
	})
}
